#include "client/admin.h"

#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/flags/flags.h"
#include "client/connection.h"
#include "client/status.h"
#include "proto/admin.grpc.pb.h"
#include "proto/cluster.grpc.pb.h"

namespace skein::client {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(200);
constexpr std::chrono::seconds kCallTimeout(10);

// Says why a call failed.
int Fail(const Connection& connection, const grpc::Status& status) {
  absl::FPrintF(stderr, "skein: %s\n", connection.Explain(status));
  return kExitError;
}

CLI::Option* AddTimeout(CLI::App& command, std::optional<absl::Duration>& timeout,
                        const char* then) {
  return AddDuration(command, "--timeout", timeout,
                     absl::StrCat("How long requests may go on; then the rest ", then))
      ->default_str("the coordinator's --drain-timeout");
}

template <typename Request>
void SetTimeout(const std::optional<absl::Duration>& timeout, Request& request) {
  if (timeout.has_value()) request.set_timeout_seconds(absl::ToDoubleSeconds(*timeout));
}

// Asks until `done(status)` says the exit code.
template <typename Done>
int WaitForStatus(const Connection& connection, const Done& done) {
  const auto stub = cluster::v1::Cluster::NewStub(connection.channel());
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    cluster::v1::ClusterStatus status;
    if (const grpc::Status result = stub->GetStatus(&context, {}, &status); !result.ok()) {
      return Fail(connection, result);
    }
    if (const std::optional<int> code = done(status)) return *code;
    absl::SleepFor(kLookEvery);
  }
}

int Add(const Connection& connection, const ModelFlags& flags) {
  admin::v1::AddModelRequest request;
  request.set_model(flags.model);
  request.mutable_flags()->Add(flags.model_flags.begin(), flags.model_flags.end());
  grpc::ClientContext context;  // files may take their time
  admin::v1::AddModelResponse response;
  const auto stub = admin::v1::Admin::NewStub(connection.channel());
  const grpc::Status added = stub->AddModel(&context, request, &response);
  if (!added.ok()) return Fail(connection, added);
  absl::PrintF("%s is served as soon as a job comes: mpirun -np N worker --model=%s\n",
               response.name(), response.name());
  return kExitOk;
}

int Remove(const Connection& connection, const ModelFlags& flags) {
  admin::v1::RemoveModelRequest request;
  request.set_name(flags.model);
  SetTimeout(flags.timeout, request);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  admin::v1::RemoveModelResponse response;
  const auto stub = admin::v1::Admin::NewStub(connection.channel());
  const grpc::Status begun = stub->RemoveModel(&context, request, &response);
  if (!begun.ok()) return Fail(connection, begun);
  absl::FPrintF(stderr, "%s takes no new requests; %d are to end, and then %d jobs\n", flags.model,
                response.requests(), response.jobs());
  return WaitForStatus(connection, [&](const auto& status) -> std::optional<int> {
    for (const auto& model : status.models()) {
      if (model.name() == response.name()) return std::nullopt;
    }
    absl::PrintF("%s is removed\n", response.name());
    return kExitOk;
  });
}

}  // namespace

void DeclareModel(CLI::App& command, ModelFlags& flags) {
  command.require_subcommand(1);
  flags.add = command.add_subcommand("add", "Serve a further model, from the coordinator's files");
  flags.add
      ->add_option("MODEL", flags.model,
                   "A folder or a GGUF file as --model of the coordinator takes it: NAME=PATH")
      ->required()
      ->check(NotEmpty());
  flags.add->fallthrough(false)->allow_extras();
  flags.add->footer(
      "Flags behind MODEL are the model's own: of the coordinator's those for plans, like --layout "
      "and\n--context-length, --chat-template and --max-queue. Others are as the coordinator has "
      "them.");
  flags.remove = command.add_subcommand("remove", "Serve a model no more, and end its jobs");
  flags.remove->add_option("NAME", flags.model, "The model")->required()->check(NotEmpty());
  AddTimeout(*flags.remove, flags.timeout, "is failed");
  flags.list = command.add_subcommand("list", "List what is served");
  flags.list->add_flag("--json", flags.json, "Print JSON");
}

int Model(const Endpoint& coordinator, const ModelFlags& flags) {
  if (flags.list->parsed()) return Models(coordinator, flags.json);
  const Connection connection(coordinator);
  return flags.add->parsed() ? Add(connection, flags) : Remove(connection, flags);
}

void DeclareDrain(CLI::App& command, DrainFlags& flags) {
  command.add_option("JOB", flags.job, "Its id, as `skein status` shows it")
      ->required()
      ->check(NotEmpty());
  AddTimeout(command, flags.timeout, "goes on with other jobs of the model");
  command.footer("Its workers end with status 0, so that a supervisor starts them no more.");
}

int Drain(const Endpoint& coordinator, const DrainFlags& flags) {
  const Connection connection(coordinator);
  admin::v1::DrainJobRequest request;
  request.set_job_id(flags.job);
  SetTimeout(flags.timeout, request);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
  admin::v1::DrainJobResponse response;
  const auto stub = admin::v1::Admin::NewStub(connection.channel());
  const grpc::Status begun = stub->DrainJob(&context, request, &response);
  if (!begun.ok()) return Fail(connection, begun);
  absl::FPrintF(stderr, "job %s takes no new requests; %d are to end\n", flags.job,
                response.requests());
  if (response.last_of_model()) {
    absl::FPrintF(stderr,
                  "it is the last job that serves %s: until another one comes, requests for it are "
                  "refused\n",
                  response.model_name());
  }
  return WaitForStatus(connection, [&](const auto& status) -> std::optional<int> {
    for (const auto& job : status.jobs()) {
      if (job.job_id() != flags.job) continue;
      if (!job.has_over_seconds()) return std::nullopt;
      absl::PrintF("job %s: %s: %s\n", flags.job, job.state(), job.detail());
      return job.state() == "ended" ? kExitOk : kExitError;
    }
    absl::PrintF("job %s has ended\n", flags.job);
    return kExitOk;
  });
}

}  // namespace skein::client
