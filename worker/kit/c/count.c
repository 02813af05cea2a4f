/* An example of dtrun_worker.h: a "model" that is a sum over steps, with collectives that go through the store. Whatever is
 * killed, the sum at the end is that of 100 times each step's number.
 *
 *   cc -O2 -o count count.c && dtrun --recovery memory --max_restarts 100 --nproc_per_node 3 --no_python ./count 500 */
#include <inttypes.h>
#include <stdio.h>

#include "dtrun_worker.h"

typedef struct {
  int64_t done; /* steps; -1: nothing is held */
  int64_t sum;
} model;

/* All say what they hold; the furthest goes on, and who is behind takes its state. */
static int agree(dtrun_worker *w, model *m) {
  char key[64], text[64];
  int64_t rank;
  snprintf(key, sizeof key, "state/%" PRId64, w->rank);
  snprintf(text, sizeof text, "%" PRId64 " %" PRId64, m->done, m->sum);
  if (dtrun_set(w, key, text, strlen(text)) != 0) return -1;
  for (rank = 0; rank < w->world_size; ++rank) {
    model peer;
    snprintf(key, sizeof key, "state/%" PRId64, rank);
    if (dtrun_get(w, key, 60000) != 0 || sscanf(w->value, "%" SCNd64 " %" SCNd64, &peer.done, &peer.sum) != 2) return -1;
    if (peer.done > m->done) *m = peer;
  }
  if (m->done < 0) m->done = 0;
  return 0;
}

/* Each rank's part of the "gradient", and their sum: an all-reduce. */
static int step(dtrun_worker *w, model *m) {
  char key[64], text[64];
  const int64_t whole = m->done * 100, part = whole / w->world_size;
  int64_t rank, sum = 0;
  snprintf(key, sizeof key, "step/%" PRId64 "/%" PRId64, m->done, w->rank);
  snprintf(text, sizeof text, "%" PRId64, w->rank == 0 ? whole - part * (w->world_size - 1) : part);
  if (dtrun_set(w, key, text, strlen(text)) != 0) return -1;
  for (rank = 0; rank < w->world_size; ++rank) {
    snprintf(key, sizeof key, "step/%" PRId64 "/%" PRId64, m->done, rank);
    if (dtrun_get(w, key, 60000) != 0) return -1;
    sum += strtoll(w->value, NULL, 10);
  }
  m->sum += sum; /* the commit: from here to the end of the step nothing can fail */
  ++m->done;
  return 0;
}

int main(int argc, char **argv) {
  static dtrun_worker w;
  model m = {-1, 0};
  const int64_t total = argc > 1 ? strtoll(argv[1], NULL, 10) : 100;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (dtrun_open(&w, 1) != 0) {
    fprintf(stderr, "count: start it with dtrun --recovery memory\n");
    return 1;
  }
  while (m.done < total && dtrun_ready(&w, m.done, "") == 0) {
    if (agree(&w, &m) != 0) continue;
    while (m.done < total && dtrun_poll(&w) == DTRUN_GO_ON) {
      usleep(20000);
      if (step(&w, &m) != 0) break;
      printf("step %" PRId64 " generation %" PRId64 " of %" PRId64 " pid %d\n", m.done, w.generation, w.world_size, (int)getpid());
      dtrun_progress(&w, m.done, total, 0.5);
    }
  }
  printf("sum %" PRId64 "\n", m.sum);
  return 0;
}
