#include "coordinator/cluster/job.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/device_kind.h"

namespace skein::coordinator {
namespace {

// "node7:/models/bard"
std::string CopyName(const Rank& rank) {
  return absl::StrCat(rank.hello.node.host, ":", rank.ready.model_path);
}

}  // namespace

const char* StateName(Rank::State state) {
  switch (state) {
    case Rank::State::kAttached:
      return "attached";
    case Rank::State::kLoading:
      return "loading";
    case Rank::State::kReady:
      return "ready";
    case Rank::State::kLost:
      return "lost";
    case Rank::State::kEnded:
      return "ended";
  }
  return "";
}

const char* StateName(Job::State state) {
  switch (state) {
    case Job::State::kWaiting:
      return "waiting for ranks";
    case Job::State::kLoading:
      return "loading";
    case Job::State::kServing:
      return "serving";
    case Job::State::kDraining:
      return "draining";
    case Job::State::kLost:
      return "lost";
    case Job::State::kEnded:
      return "ended";
  }
  return "";
}

std::string RankName(const attach::Hello& hello) {
  return absl::StrCat("rank ", hello.rank, " on ", hello.node.host, " (pid ", hello.pid, ")");
}

Rank* FirstToFail(Job& job) {
  Rank* first = nullptr;
  for (auto& [number, rank] : job.ranks) {
    if (rank.failure.empty()) continue;
    if (first == nullptr || rank.failed_at < first->failed_at) first = &rank;
  }
  return first;
}

absl::Status CheckSlices(const Job& job, const Rank& rank, const Job& other) {
  for (const auto& [number, peer] : other.ranks) {
    if (&peer == &rank || peer.state != Rank::State::kReady) continue;
    if (peer.ready.slice_key != rank.ready.slice_key) continue;
    if (peer.ready.slice_digest == rank.ready.slice_digest) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        RankName(rank.hello), " of job ", job.id, " read other weights (", rank.ready.slice_key,
        ", digest ", rank.ready.slice_digest, ") than ", RankName(peer.hello), " of job ", other.id,
        " (digest ", peer.ready.slice_digest, "): the copies ", CopyName(rank), " and ",
        CopyName(peer), " differ"));
  }
  return absl::OkStatus();
}

bool HasGpus(const Job& job) { return job.machine.devices.front().kind == DeviceKind::kCuda; }

bool HasName(const JobModel& model, const std::string& name) {
  return model.facts.name == name ||
         std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end();
}

std::vector<ReplicaId> ReplicasOf(const Job& job) {
  std::vector<ReplicaId> replicas;
  for (const Replica& replica : job.replicas) replicas.push_back(replica.id);
  return replicas;
}

JobStatus StatusOfJob(const Job& job, absl::Time now) {
  JobStatus status;
  status.id = job.id;
  status.version = job.version;
  status.protocol = job.protocol;
  status.model = job.model->facts.name;
  status.state = StateName(job.state);
  status.size = job.size;
  status.plan = job.plan;
  status.detail = job.detail;
  if (job.over()) status.over_for = now - job.over_since;
  for (const auto& [number, rank] : job.ranks) {
    const bool idles = rank.state == Rank::State::kReady && job.plan->Find(number) == nullptr;
    status.ranks.push_back({rank.hello.rank, rank.hello.node.host, rank.hello.pid,
                            idles ? "idle" : StateName(rank.state), now - rank.last_heard,
                            rank.ready.bytes_read, rank.times.All(), rank.times.Recent()});
    const std::optional<ExpertLoad>& load = rank.heartbeat.experts;
    if (load && (!status.experts || load->of_average > status.experts->of_average)) {
      status.experts = load;
    }
  }
  for (const Replica& replica : job.replicas) {
    status.replicas.push_back({static_cast<int32_t>(status.replicas.size()), replica.load,
                               job.over() ? 0 : replica.rate.PerSecond(now), replica.tokens_total,
                               replica.steps.Decodes(), replica.steps.Prompts()});
  }
  return status;
}

}  // namespace skein::coordinator
