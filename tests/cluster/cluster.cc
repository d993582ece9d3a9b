#include "tests/cluster/cluster.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "proto/credentials/credentials.h"
#include "tests/cluster/test_device.h"

namespace skein::testing {
namespace {

constexpr const char* kCoordinator = "coordinator/coordinator";

// Short: Open MPI puts Unix sockets below it, whose names have at most 107 characters.
std::string MakeScratch() {
  std::string path = "/tmp/skein-test.XXXXXX";
  if (mkdtemp(path.data()) == nullptr) std::abort();
  return path;
}

}  // namespace

std::string FindProgram(const std::string& path) {
  if (std::filesystem::exists(path)) return path;
  const std::string name = std::filesystem::path(path).filename().string();
  return (std::filesystem::exists("gpu/" + name) ? "gpu/" : "bin/") + name;
}

v1::GenerateRequest GreedyRequest(const std::string& prompt, uint32_t max_tokens) {
  v1::GenerateRequest request;
  request.set_prompt(prompt);
  request.set_max_tokens(max_tokens);
  request.mutable_sampling()->set_temperature(0);
  return request;
}

Cluster::Cluster(const Options& options) : options_(options), scratch_(MakeScratch()) {
  StartCoordinator("127.0.0.1:0");
  channel_ = grpc::CreateChannel(address_, ChannelCredentialsOf(options_.tls));
  inference_ = v1::Inference::NewStub(channel_);
  cluster_ = cluster::v1::Cluster::NewStub(channel_);
}

void Cluster::StartCoordinator(const std::string& listen) {
  const std::string port_file = scratch_ + "/port";
  std::filesystem::remove(port_file);
  std::vector<std::string> argv = {FindProgram(kCoordinator), "--model=" + options_.model,
                                   "--listen=" + listen, "--port-file=" + port_file};
  if (!options_.layout.empty()) argv.push_back("--layout=" + options_.layout);
  argv.insert(argv.end(), options_.coordinator_flags.begin(), options_.coordinator_flags.end());
  for (const std::string& flag : CoordinatorDeviceFlags(options_.coordinator_flags)) {
    argv.push_back(flag);
  }
  coordinator_ = std::make_unique<Process>(Process::Options{.name = "coordinator", .argv = argv});
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  address_.clear();
  while (address_.empty() && absl::Now() < deadline && !coordinator_->Wait(absl::ZeroDuration())) {
    std::ifstream(port_file) >> address_;
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_FALSE(address_.empty()) << "the coordinator does not listen:\n" << coordinator_->Output();
}

void Cluster::RestartCoordinator() { StartCoordinator(std::string(address_)); }

Cluster::~Cluster() {
  jobs_.clear();
  coordinator_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(scratch_, ignored);
}

Process& Cluster::StartJob(int ranks, const std::vector<std::string>& flags,
                           const std::string& coordinator, const std::vector<std::string>& launch) {
  // With the settings that the README tells users to take.
  std::vector<std::string> argv = {"sh", "-c", ". scripts/env.sh && exec mpirun \"$@\"", "mpirun"};
  argv.insert(argv.end(), launch.begin(), launch.end());
  for (const std::string& argument : LaunchDeviceFlags(static_cast<int>(jobs_.size()), ranks)) {
    argv.push_back(argument);
  }
  argv.insert(argv.end(), {"-np", absl::StrCat(ranks), FindProgram(options_.worker),
                           "--coordinator=" + (coordinator.empty() ? address_ : coordinator)});
  for (const std::string& flag : WorkerDeviceFlags()) argv.push_back(flag);
  argv.insert(argv.end(), flags.begin(), flags.end());
  // A folder of its own: a killed mpirun of Open MPI 5 leaves one there, named after its pid, and
  // the next one of this pid does not start.
  const std::string own = absl::StrCat(scratch_, "/", jobs_.size());
  std::filesystem::create_directory(own);
  return *jobs_.emplace_back(std::make_unique<Process>(Process::Options{
      .name = "job", .argv = argv, .environment = {{"TMPDIR", own}, {"HOME", own}}}));
}

cluster::v1::ClusterStatus Cluster::Status() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  context.set_wait_for_ready(true);  // the channel may still back off from an earlier coordinator
  cluster::v1::ClusterStatus status;
  cluster_->GetStatus(&context, {}, &status);
  return status;
}

bool Cluster::WaitForServing(int jobs, absl::Duration timeout) {
  if (OnGpus()) timeout *= 2;  // contexts, graphs
  return WaitForStatus(
      [jobs](const cluster::v1::ClusterStatus& status) {
        int serving = 0;
        for (const auto& job : status.jobs()) serving += job.state() == "serving";
        return serving >= jobs;
      },
      timeout);
}

cluster::v1::JobStatus Cluster::ServingJob(int index) {
  const cluster::v1::ClusterStatus status = Status();
  for (const auto& job : status.jobs()) {
    if (job.state() == "serving" && index-- == 0) return job;
  }
  ADD_FAILURE() << "no such job:\n" << status.DebugString();
  return {};
}

Answer Cluster::Generate(const v1::GenerateRequest& request, absl::Duration deadline) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(deadline));
  auto reader = inference_->Generate(&context, request);
  Answer answer;
  v1::GenerateEvent event;
  while (reader->Read(&event)) answer.Add(event);
  answer.status = reader->Finish();
  EXPECT_EQ(answer.Fault(), "");
  return answer;
}

std::vector<Answer> Cluster::GenerateAll(const std::vector<v1::GenerateRequest>& requests) {
  std::vector<Answer> answers(requests.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < requests.size(); ++i) {
    threads.emplace_back([&, i] { answers[i] = Generate(requests[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return answers;
}

}  // namespace skein::testing
