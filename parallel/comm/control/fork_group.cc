#include "parallel/comm/control/fork_group.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace skein::comm {
namespace {

constexpr size_t kAreaBytes = 64 << 10;

struct Shared {
  pthread_barrier_t barrier;
  char areas[][kAreaBytes];
};

class ForkedRank final : public Communicator {
 public:
  ForkedRank(Shared* shared, int rank, int size)
      : Communicator("forked", rank, size), shared_(shared) {}

 private:
  bool DoSumsAsTree() const override { return false; }
  absl::Status DoAllGather(const Call&, ConstView in, View out, Stream) override {
    const auto bytes = static_cast<size_t>(in.bytes());
    if (bytes > kAreaBytes) return absl::InvalidArgumentError("too large for a test");
    if (bytes > 0) std::memcpy(shared_->areas[rank()], in.data, bytes);
    pthread_barrier_wait(&shared_->barrier);
    for (int peer = 0; peer < size() && bytes > 0; ++peer) {
      std::memcpy(HostBytes(out).data() + peer * bytes, shared_->areas[peer], bytes);
    }
    pthread_barrier_wait(&shared_->barrier);
    return absl::OkStatus();
  }
  absl::Status DoAllReduce(const Call&, View, Stream) override { return Unknown(); }
  absl::Status DoBroadcast(const Call& call, View data, Stream) override {
    const absl::Span<std::byte> bytes = HostBytes(data);
    if (bytes.size() > kAreaBytes) return absl::InvalidArgumentError("too large for a test");
    if (rank() == call.peer) std::memcpy(shared_->areas[rank()], bytes.data(), bytes.size());
    pthread_barrier_wait(&shared_->barrier);
    std::memcpy(bytes.data(), shared_->areas[call.peer], bytes.size());
    pthread_barrier_wait(&shared_->barrier);
    return absl::OkStatus();
  }
  absl::Status DoSend(const Call&, ConstView, Stream) override { return Unknown(); }
  absl::Status DoReceive(const Call&, View, Stream) override { return Unknown(); }
  absl::Status DoBarrier(const Call&, Stream) override { return Unknown(); }
  static absl::Status Unknown() {
    return absl::UnimplementedError("only all-gather and broadcast are known");
  }

  Shared* const shared_;  // unmapped by the end of the process
};

}  // namespace

std::unique_ptr<Communicator> ForkGroup::Fork(int size, int parent_rank,
                                              std::vector<pid_t>* children) {
  void* memory = mmap(nullptr, sizeof(Shared) + size * kAreaBytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  Shared* const shared = static_cast<Shared*>(memory);
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, size);
  children->assign(size, 0);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == parent_rank) continue;
    const pid_t child = fork();
    if (child < 0) std::abort();
    if (child == 0) return std::make_unique<ForkedRank>(shared, rank, size);
    (*children)[rank] = child;
  }
  return std::make_unique<ForkedRank>(shared, parent_rank, size);
}

}  // namespace skein::comm
