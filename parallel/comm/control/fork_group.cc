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
  ForkedRank(Shared* shared, int rank, int size) : shared_(shared), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return "forked"; }
  absl::Status AllGather(absl::Span<const std::byte> in, absl::Span<std::byte> out,
                         Stream) override {
    if (in.size() > kAreaBytes) return absl::InvalidArgumentError("too large for a test");
    if (!in.empty()) std::memcpy(shared_->areas[rank_], in.data(), in.size());
    pthread_barrier_wait(&shared_->barrier);
    for (int peer = 0; peer < size_ && !in.empty(); ++peer) {
      std::memcpy(&out[peer * in.size()], shared_->areas[peer], in.size());
    }
    pthread_barrier_wait(&shared_->barrier);
    return absl::OkStatus();
  }

  absl::Status AllReduce(absl::Span<float>, Stream) override { return Unknown(); }
  absl::Status ReduceScatter(absl::Span<const float>, absl::Span<float>, Stream) override {
    return Unknown();
  }
  absl::Status Broadcast(absl::Span<std::byte>, int, Stream) override { return Unknown(); }
  absl::Status Send(absl::Span<const std::byte>, int, Stream) override { return Unknown(); }
  absl::Status Receive(absl::Span<std::byte>, int, Stream) override { return Unknown(); }
  absl::Status Barrier(Stream) override { return Unknown(); }
  void Abort(absl::Status) override {}
  void set_timeout(absl::Duration) override {}
  int64_t calls() const override { return 0; }

 private:
  static absl::Status Unknown() { return absl::UnimplementedError("only all-gather is known"); }

  Shared* const shared_;  // unmapped by the end of the process
  const int rank_;
  const int size_;
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
