// A real coordinator and real jobs under mpirun, driven over gRPC: what integration and fault tests
// start.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/tls/mutual_tls.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "tests/cluster/answer.h"
#include "tests/cluster/process.h"

namespace skein::testing {

class Cluster {
 public:
  struct Options {
    std::string model = "checkpoints/bard";
    std::string layout;  // --layout; empty: the planner's choice
    std::vector<std::string> coordinator_flags;
    std::optional<MutualTls> tls;          // of the test as a client
    std::string worker = "worker/worker";  // the jobs' program
  };

  explicit Cluster(const Options& options);  // returns when the coordinator listens
  ~Cluster();                                // kills what still runs, removes the scratch folder

  // Starts a coordinator anew where the one before listened, which must be gone.
  void RestartCoordinator();
  // mpirun `launch` -np `ranks` worker `flags`, which comes to `coordinator` (empty: this one,
  // without a detour); does not wait.
  Process& StartJob(int ranks, const std::vector<std::string>& flags = {},
                    const std::string& coordinator = "",
                    const std::vector<std::string>& launch = {});
  // Polls the status until `jobs` jobs serve; false after `timeout`.
  bool WaitForServing(int jobs, absl::Duration timeout = absl::Seconds(60));
  cluster::v1::ClusterStatus Status();
  // The job's ranks as the coordinator knows them; the job is the `index`-th that serves.
  cluster::v1::JobStatus ServingJob(int index);
  // Waits until `predicate(Status())` holds.
  template <typename Predicate>
  bool WaitForStatus(Predicate predicate, absl::Duration timeout) {
    const absl::Time deadline = absl::Now() + timeout;
    while (!predicate(Status())) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(50));
    }
    return true;
  }

  // A stream that breaks the contract fails the test.
  Answer Generate(const v1::GenerateRequest& request, absl::Duration deadline = absl::Seconds(120));
  // All at once, a thread each.
  std::vector<Answer> GenerateAll(const std::vector<v1::GenerateRequest>& requests);

  v1::Inference::Stub& inference() { return *inference_; }
  std::shared_ptr<grpc::Channel> channel() { return channel_; }
  Process& coordinator() { return *coordinator_; }
  const std::string& address() const { return address_; }
  // Where Open MPI puts its session folders.
  const std::string& scratch() const { return scratch_; }

 private:
  void StartCoordinator(const std::string& listen);

  const Options options_;
  std::string scratch_;
  std::string address_;
  std::unique_ptr<Process> coordinator_;
  std::vector<std::unique_ptr<Process>> jobs_;  // ends before the coordinator
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<cluster::v1::Cluster::Stub> cluster_;
};

// A program by its path in Bazel's tree, or as an unpacked package has it: bin/worker, or
// gpu/faulty_worker.
std::string FindProgram(const std::string& path);

v1::GenerateRequest GreedyRequest(const std::string& prompt, uint32_t max_tokens);

}  // namespace skein::testing
