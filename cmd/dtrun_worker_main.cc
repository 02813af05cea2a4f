#include "cmd/worker_main.h"

int main(int argc, char** argv) { return dtrun::worker::worker_main(argc, argv); }
