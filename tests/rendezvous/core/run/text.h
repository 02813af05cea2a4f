// Events and actions of the coordinator as lines of text, for traces and failure messages.
#pragma once

#include <string>

#include "rendezvous/core/messages.h"

namespace dtrun::rendezvous {

// "joins host=node-a nproc=2 nnodes=1:4", "says finished in generation 3"
std::string text_of(const Event& event);

// "assigned generation 1: rank 0 of 2, world 3 [node-a:0-1 node-b:2] ...", without the receiver.
std::string text_of(const Action& action);

}  // namespace dtrun::rendezvous
