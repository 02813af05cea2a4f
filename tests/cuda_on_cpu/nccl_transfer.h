// An operation of the stand-in: bytes between device memory and sockets, as far as it gets each time that it
// is asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "tests/cuda_on_cpu/nccl_communicator.h"

namespace cuda_on_cpu {

class Transfer {
 public:
  // `group`: number among the communicator's groups, from 1 on.
  Transfer(std::shared_ptr<Communicator> communicator, Work work, std::uint64_t group);
  // On the devices' thread. Done, too, once the communicator is aborted: with NaN in all results.
  Progress ask();

 private:
  // Before each message; a receiver compares.
  struct Header {
    std::uint64_t group, bytes;
  };
  struct Message {
    Piece piece;
    Header header;          // that is sent, or was received
    std::size_t moved = 0;  // bytes of header and piece
  };
  struct Peer {
    std::deque<Message> out, in;
    bool gone = false;
  };

  void begin();
  bool has_fault();
  void die();
  void begin_phase();
  void copy_to_itself();
  bool is_ready() const;
  bool move(int rank);
  bool move_out(int rank);
  bool move_in(int rank);
  bool phase_is_done() const;
  bool fits(int rank, const Message& message);
  void lose(int rank);
  std::size_t at_most(std::size_t bytes);
  void spoil();

  const std::shared_ptr<Communicator> communicator_;
  const Work work_;
  const std::uint64_t group_;
  bool begun_ = false, stuck_ = false;
  std::size_t phase_ = 0;
  std::vector<Peer> peers_;  // by rank
};

}  // namespace cuda_on_cpu
