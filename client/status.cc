#include "client/status.h"

#include <grpcpp/client_context.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/flags/flags.h"
#include "base/units.h"
#include "client/connection.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/inference.grpc.pb.h"
#include "proto/message_json.h"

namespace skein::client {
namespace {

constexpr absl::Duration kLookEvery = absl::Milliseconds(200);
constexpr absl::Duration kCallTimeout = absl::Seconds(10);

void SetTimeout(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kCallTimeout));
}

// "65% compute, 2% transfer, 13% bubble, 20% wait"; empty where nothing was told.
std::string Shares(const cluster::v1::RankTimes& times) {
  const double whole = times.compute_seconds() + times.transfer_seconds() + times.bubble_seconds() +
                       times.waiting_seconds();
  if (whole <= 0) return "";
  return absl::StrFormat(
      "%.0f%% compute, %.0f%% transfer, %.0f%% bubble, %.0f%% wait",
      100 * times.compute_seconds() / whole, 100 * times.transfer_seconds() / whole,
      100 * times.bubble_seconds() / whole, 100 * times.waiting_seconds() / whole);
}

void PrintRanks(const cluster::v1::JobStatus& job) {
  absl::PrintF("  %4s  %-24s %8s  %-9s %10s  %-10s  %s\n", "rank", "host", "pid", "state", "read",
               "last heard", "time, lately");
  for (const auto& rank : job.ranks()) {
    const std::string heard = absl::StrFormat("%.1f s ago", rank.heartbeat_age_seconds());
    absl::PrintF("  %4d  %-24s %8d  %-9s %10s  %-10s  %s\n", rank.rank(), rank.host(), rank.pid(),
                 rank.state(), FormatBytes(rank.bytes_read()), heard, Shares(rank.recent_times()));
  }
}

// 0 of 0 is 0.
double Ratio(double part, int64_t whole) {
  return whole > 0 ? part / static_cast<double>(whole) : 0;
}

// "1m20s ago"
std::string Ago(double seconds) {
  const absl::Duration whole = absl::Trunc(absl::Seconds(seconds), absl::Seconds(1));
  return absl::StrCat(absl::FormatDuration(whole), " ago");
}

void PrintReplica(const cluster::v1::ReplicaStatus& replica) {
  const cluster::v1::ReplicaLoad& load = replica.load();
  absl::PrintF("  replica %d: %.1f tokens/s, %d tokens in %d steps, %d running, %d waiting\n",
               replica.replica(), replica.tokens_per_second(), replica.tokens_total(), load.steps(),
               load.running(), load.waiting());
  absl::PrintF("    pages: %d used (%d shared), %d cached, %d free of %d; swap: %d used of %d\n",
               load.used_pages(), load.shared_pages(), load.cached_pages(), load.free_pages(),
               load.total_pages(), load.total_swap_pages() - load.free_swap_pages(),
               load.total_swap_pages());
  absl::PrintF(
      "    prefix cache: %.1f%% of %d prompt tokens; preemptions: %d swapped, %d recomputed; "
      "host: %.0f us/step\n",
      100 * Ratio(static_cast<double>(load.cached_tokens()), load.prompt_tokens()),
      load.prompt_tokens(), load.preemptions_swapped(), load.preemptions_recomputed(),
      1e6 * Ratio(load.host_seconds(), load.steps()));
  if (replica.has_decode()) {
    const cluster::v1::DecodeComparison& decode = replica.decode();
    absl::PrintF(
        "    a decode step: %s, of %.1f sequences at %.0f tokens; predicted: %s (%+.0f%%)\n",
        FormatMilliseconds(absl::Seconds(decode.measured_seconds())), decode.rows(),
        decode.context(), FormatMilliseconds(absl::Seconds(decode.predicted_seconds())),
        100 * (decode.measured_seconds() / decode.predicted_seconds() - 1));
  }
  if (replica.has_prompt()) {
    const cluster::v1::PromptComparison& prompt = replica.prompt();
    absl::PrintF(
        "    a step with prompts: %s, of %.1f tokens of these beside %.1f sequences; predicted: %s "
        "(%+.0f%%)\n",
        FormatMilliseconds(absl::Seconds(prompt.measured_seconds())), prompt.rows(),
        prompt.decodes(), FormatMilliseconds(absl::Seconds(prompt.predicted_seconds())),
        100 * (prompt.measured_seconds() / prompt.predicted_seconds() - 1));
  }
}

void Print(const cluster::v1::ClusterStatus& status) {
  absl::PrintF("skein %s, model %s: %s, up %.0f s, %d running, %d queued\n", status.version(),
               status.models().empty() ? "none" : status.model_name(),
               status.draining()  ? "draining"
               : status.serving() ? "serving"
                                  : "not serving (no replica is loaded)",
               status.uptime_seconds(), status.running_requests(), status.queued_requests());
  for (const auto& model : status.models()) {
    if (status.models_size() == 1) break;
    absl::PrintF("  model %s: %s, %d running, %d queued\n", model.name(), model.state(),
                 model.running_requests(), model.queued_requests());
  }
  for (const auto& job : status.jobs()) {
    std::string state = job.state();
    if (job.has_over_seconds()) absl::StrAppend(&state, " ", Ago(job.over_seconds()));
    if (!job.version().empty() && job.version() != status.version()) {
      absl::StrAppend(&state, ", Skein ", job.version());
    }
    const std::string of =
        status.models_size() > 1 ? absl::StrCat(" of ", job.model_name()) : std::string();
    absl::PrintF("\njob %s%s: %s, %d of %d ranks\n", job.job_id(), of, state, job.ranks_size(),
                 job.size());
    if (!job.detail().empty()) absl::PrintF("  %s\n", job.detail());
    if (job.has_over_seconds()) continue;
    if (!job.plan_table().empty()) absl::PrintF("%s\n", job.plan_table());
    PrintRanks(job);
    if (job.has_experts()) {
      absl::PrintF("  experts: expert %d of layer %d has %.1f times the average of %d rows\n",
                   job.experts().expert(), job.experts().layer(), job.experts().of_average(),
                   job.experts().rows());
    }
    for (const auto& replica : job.replicas()) PrintReplica(replica);
  }
}

}  // namespace

void DeclareStatus(CLI::App& command, StatusFlags& flags) {
  AddDuration(command, "--wait", flags.wait, "Wait until a replica serves, at most this long");
  command.add_flag("--json", flags.json, "Print JSON");
}

int Status(const Endpoint& coordinator, const StatusFlags& flags) {
  const Connection connection(coordinator);
  const auto stub = cluster::v1::Cluster::NewStub(connection.channel());
  const absl::Time until = absl::Now() + flags.wait.value_or(absl::ZeroDuration());
  cluster::v1::ClusterStatus status;
  grpc::Status result;
  while (true) {
    grpc::ClientContext context;
    SetTimeout(context);
    status.Clear();
    result = stub->GetStatus(&context, {}, &status);
    if (!flags.wait || (result.ok() && status.serving()) || absl::Now() >= until) break;
    connection.Pause(kLookEvery);
  }
  if (!result.ok()) {
    absl::FPrintF(stderr, "skein: %s\n", connection.Explain(result));
    return kExitError;
  }
  if (flags.json) {
    absl::PrintF("%s\n", ToJson(status));
  } else {
    Print(status);
  }
  if (!flags.wait || status.serving()) return kExitOk;
  absl::FPrintF(stderr, "skein: no replica serves after %s\n", absl::FormatDuration(*flags.wait));
  return kExitError;
}

int Models(const Endpoint& coordinator, bool json) {
  const Connection connection(coordinator);
  const auto stub = v1::Inference::NewStub(connection.channel());
  grpc::ClientContext context;
  SetTimeout(context);
  v1::ListModelsResponse response;
  const grpc::Status result = stub->ListModels(&context, {}, &response);
  if (!result.ok()) {
    absl::FPrintF(stderr, "skein: %s\n", connection.Explain(result));
    return kExitError;
  }
  if (json) {
    absl::PrintF("%s\n", ToJson(response));
    return kExitOk;
  }
  for (const v1::Model& model : response.models()) {
    if (model.architecture().empty()) {
      absl::PrintF("%s: %s\n", model.name(), model.state());
      continue;
    }
    absl::PrintF("%s: %s, %d parameters, context %d, vocabulary %d, %s\n", model.name(),
                 model.architecture(), model.parameters(), model.context_length(),
                 model.vocabulary(), model.state());
  }
  return kExitOk;
}

}  // namespace skein::client
