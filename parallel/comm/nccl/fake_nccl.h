// What a test tells fake_nccl.cc to do, and hears from it. The library shows it as `fake_nccl`.
#pragma once

#include <atomic>

namespace skein::comm {

struct FakeNccl {
  std::atomic<bool> init_waits = false;  // for a rank that never comes
  std::atomic<bool> end_waits = false;   // likewise
  std::atomic<int> id_code = 0;
  std::atomic<int> init_code = 0;
  std::atomic<int> refused_rank = -1;  // has init_code alone, and waits for nobody; -1: all have it
  std::atomic<int> async_code = 0;
  std::atomic<int> inits = 0;
  std::atomic<int> blocking_inits = 0;
  std::atomic<int> most_blocks = 0;  // of the last one; 0: not said
  std::atomic<int> sums = 0;
  std::atomic<int> bf16_sums = 0;
  std::atomic<int> f16_sums = 0;
  std::atomic<int> elements = 0;    // of the last sum
  std::atomic<int> sent_bytes = 0;  // by the last message
  std::atomic<int> sent_to = -1;
  std::atomic<int> received_from = -1;
  std::atomic<int> finalizes = 0;
  std::atomic<int> destroys = 0;
  std::atomic<int> aborts = 0;
};

}  // namespace skein::comm
