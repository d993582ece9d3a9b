// A coordinator without a model, for tests of who starts it and asks it about jobs.
//   fake_coordinator --listen HOST:PORT [FLAG...], with a folder in $LAUNCH_TEST
// A job's state is the first line of the folder's job.ID, the rest is its detail. It writes its pid
// to `coordinator`, its port to `port`. Told by a file `exhaust`, which it removes, it has no
// descriptors left from then on. SIGTERM: it writes "drain ARGUMENTS" to `events`, makes `drained`,
// and ends with 0.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "proto/cluster.grpc.pb.h"

namespace {

namespace wire = ::skein::cluster::v1;

class FakeCluster final : public wire::Cluster::Service {
 public:
  explicit FakeCluster(std::string folder) : folder_(std::move(folder)) {}

  grpc::Status GetJob(grpc::ServerContext* /*context*/, const wire::GetJobRequest* request,
                      wire::JobStatus* job) override {
    if (std::filesystem::remove(folder_ + "/exhaust")) {
      const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
      setrlimit(RLIMIT_NOFILE, &none);
    }
    if (request->job_key().size() != 32) return {grpc::StatusCode::INVALID_ARGUMENT, "key"};
    std::ifstream file(folder_ + "/job." + request->job_id());
    std::string state, detail;
    if (!std::getline(file, state)) return {grpc::StatusCode::NOT_FOUND, ""};
    std::getline(file, detail);
    job->set_state(state);
    job->set_detail(detail);
    return grpc::Status::OK;
  }

 private:
  const std::string folder_;
};

}  // namespace

int main(int argc, char** argv) {
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, nullptr);
  std::string arguments, listen;
  for (int i = 1; i < argc; ++i) {
    arguments += std::string(" ") + argv[i];
    if (std::string(argv[i]) == "--listen") listen = argv[i + 1];
  }
  const char* const folder = std::getenv("LAUNCH_TEST");
  if (folder == nullptr) return 2;
  const std::string path = std::string(folder) + "/";
  FakeCluster cluster(folder);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&cluster);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::puts("host coordinator | listening");
  std::fflush(stdout);
  std::ofstream(path + "port.new") << port << "\n";
  std::filesystem::rename(path + "port.new", path + "port");
  std::ofstream(path + "coordinator") << getpid() << "\n";
  int signal = 0;
  sigwait(&term, &signal);
  std::ofstream(path + "events", std::ios::app) << "drain" << arguments << "\n";
  std::ofstream(path + "drained") << "";
  _exit(0);
}
