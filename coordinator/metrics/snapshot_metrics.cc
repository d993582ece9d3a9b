#include "coordinator/metrics/snapshot_metrics.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace skein::coordinator {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

MetricFamily Family(const char* name, MetricType type, const char* help) {
  return {.name = name, .help = help, .type = type, .metric = {}};
}

void Add(MetricFamily& family, Labels labels, double value) {
  ClientMetric& metric = family.metric.emplace_back();
  metric.label = std::move(labels);
  (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
}

MetricFamily OfModels(const MetricsSnapshot& snapshot, const char* name, MetricType type,
                      const char* help, int64_t Dispatcher::Counts::* count) {
  MetricFamily family = Family(name, type, help);
  for (const MetricsSnapshot::Model& model : snapshot.models) {
    Add(family, {{"model_name", model.name}}, static_cast<double>(model.requests.*count));
  }
  return family;
}

MetricFamily Info(const MetricsSnapshot& snapshot, const std::string& version) {
  MetricFamily family =
      Family("skein_info", MetricType::Gauge, "Always 1; the labels tell what runs.");
  for (const MetricsSnapshot::Model& model : snapshot.models) {
    Add(family, {{"model_name", model.name}, {"version", version}}, 1);
  }
  return family;
}

// ---- Replicas ----

// What is read of each replica; nothing: it does not know yet.
struct OfReplica {
  const char* name;
  MetricType type;
  const char* help;
  std::optional<double> (*read)(const ReplicaStatus& replica);
};

// A field of the load that a replica reports with each step.
template <auto kField>
std::optional<double> Load(const ReplicaStatus& replica) {
  return static_cast<double>(replica.load.*kField);
}
template <auto kField>
std::optional<double> LoadSeconds(const ReplicaStatus& replica) {
  return absl::ToDoubleSeconds(replica.load.*kField);
}
template <auto kSteps>
std::optional<double> Prompts(const ReplicaStatus& replica) {
  return static_cast<double>(replica.load.prompt_steps.*kSteps);
}
template <auto kKind, auto kField>
std::optional<double> StepSeconds(const ReplicaStatus& replica) {
  if (!(replica.*kKind).has_value()) return std::nullopt;
  return absl::ToDoubleSeconds((*(replica.*kKind)).*kField);
}

std::optional<double> PagesInUse(const ReplicaStatus& replica) {
  if (replica.load.total_pages == 0) return std::nullopt;
  return static_cast<double>(replica.load.used_pages) /
         static_cast<double>(replica.load.total_pages);
}

using Loads = serving::ReplicaLoad;

constexpr OfReplica kOfReplica[] = {
    {"skein_replica_sequences_running", MetricType::Gauge,
     "Sequences that a replica computes; an answer is one.", Load<&Loads::running>},
    {"skein_replica_sequences_waiting", MetricType::Gauge,
     "Sequences that a replica has and does not compute yet.", Load<&Loads::waiting>},
    {"skein_kv_cache_usage_perc", MetricType::Gauge,
     "The share of the KV cache's pages that running sequences use; 1 is all.", PagesInUse},
    {"skein_kv_pages", MetricType::Gauge, "Pages of the KV cache.", Load<&Loads::total_pages>},
    {"skein_kv_pages_used", MetricType::Gauge, "Pages that running sequences use.",
     Load<&Loads::used_pages>},
    {"skein_kv_pages_shared", MetricType::Gauge, "Used pages that two sequences or more share.",
     Load<&Loads::shared_pages>},
    {"skein_kv_pages_cached", MetricType::Gauge, "Pages kept for later prompts, used or not.",
     Load<&Loads::cached_pages>},
    {"skein_kv_pages_free", MetricType::Gauge, "Pages that are neither used nor cached.",
     Load<&Loads::free_pages>},
    {"skein_swap_pages", MetricType::Gauge, "Pages of the second cache.",
     Load<&Loads::total_swap_pages>},
    {"skein_swap_pages_free", MetricType::Gauge, "Pages of the second cache that are free.",
     Load<&Loads::free_swap_pages>},
    {"skein_prefix_cache_queries_total", MetricType::Counter,
     "Tokens of prompts that were looked for in the prefix cache.", Load<&Loads::prompt_tokens>},
    {"skein_prefix_cache_hits_total", MetricType::Counter,
     "Tokens of prompts that were found in the prefix cache.", Load<&Loads::cached_tokens>},
    {"skein_replica_generation_tokens_total", MetricType::Counter, "Tokens that a replica gave.",
     [](const ReplicaStatus& replica) {
       return std::optional(static_cast<double>(replica.tokens_total));
     }},
    {"skein_replica_steps_total", MetricType::Counter, "Steps of a replica.", Load<&Loads::steps>},
    {"skein_decode_steps_total", MetricType::Counter, "Steps that decoded alone.",
     Load<&Loads::decode_steps>},
    {"skein_decode_rows_total", MetricType::Counter,
     "Rows, one for each sequence, of steps that decoded alone.", Load<&Loads::decode_rows>},
    {"skein_decode_seconds_total", MetricType::Counter,
     "Time of steps that decoded alone, each from the result before it to its own.",
     LoadSeconds<&Loads::decode_time>},
    {"skein_prompt_steps_total", MetricType::Counter,
     "Steps with rows of prompts, beside which others may decode.",
     Prompts<&serving::PromptSteps::steps>},
    {"skein_prompt_rows_total", MetricType::Counter, "Tokens of prompts that were computed.",
     Prompts<&serving::PromptSteps::rows>},
    {"skein_prompt_seconds_total", MetricType::Counter,
     "Time of steps with rows of prompts, each from the result before it to its own.",
     [](const ReplicaStatus& replica) {
       return std::optional(absl::ToDoubleSeconds(replica.load.prompt_steps.time));
     }},
    {"skein_scheduling_cpu_seconds_total", MetricType::Counter,
     "CPU time of the scheduling thread from results to the next order.",
     LoadSeconds<&Loads::host_time>},
    {"skein_decode_step_measured_seconds", MetricType::Gauge,
     "The mean time of the newest steps that decoded alone.",
     StepSeconds<&ReplicaStatus::decodes, &StepComparison::measured>},
    {"skein_decode_step_predicted_seconds", MetricType::Gauge,
     "What the plan predicts of the same steps.",
     StepSeconds<&ReplicaStatus::decodes, &StepComparison::predicted>},
    {"skein_prompt_step_measured_seconds", MetricType::Gauge,
     "The mean time of the newest steps with rows of prompts.",
     StepSeconds<&ReplicaStatus::prompts, &StepComparison::measured>},
    {"skein_prompt_step_predicted_seconds", MetricType::Gauge,
     "What the plan predicts of the same steps.",
     StepSeconds<&ReplicaStatus::prompts, &StepComparison::predicted>},
};

void AddReplicas(const std::vector<const JobStatus*>& jobs, std::vector<MetricFamily>& families) {
  for (const OfReplica& of : kOfReplica) {
    MetricFamily& family = families.emplace_back(Family(of.name, of.type, of.help));
    for (const JobStatus* const job : jobs) {
      for (const ReplicaStatus& replica : job->replicas) {
        const std::optional<double> value = of.read(replica);
        if (!value.has_value()) continue;
        Add(family,
            {{"job_id", job->id},
             {"model_name", job->model},
             {"replica", absl::StrCat(replica.replica)}},
            *value);
      }
    }
  }
  MetricFamily& preemptions = families.emplace_back(
      Family("skein_num_preemptions_total", MetricType::Counter,
             "Sequences that gave their pages up to others, by what became of the pages: swapped "
             "out, or to be recomputed."));
  for (const JobStatus* const job : jobs) {
    for (const ReplicaStatus& replica : job->replicas) {
      for (const auto& [mode, count] :
           {std::pair("swap", replica.load.preemptions_swapped),
            std::pair("recompute", replica.load.preemptions_recomputed)}) {
        Add(preemptions,
            {{"job_id", job->id},
             {"mode", mode},
             {"model_name", job->model},
             {"replica", absl::StrCat(replica.replica)}},
            static_cast<double>(count));
      }
    }
  }
}

// ---- Jobs and ranks ----

// States are shown with a zero, too: what was there and is gone is to be seen.
void AddJobs(const MetricsSnapshot& snapshot, const std::vector<const JobStatus*>& jobs,
             std::vector<MetricFamily>& families) {
  MetricFamily& family =
      families.emplace_back(Family("skein_jobs", MetricType::Gauge, "Jobs by state."));
  for (const MetricsSnapshot::Model& model : snapshot.models) {
    for (const Job::State state : {Job::State::kWaiting, Job::State::kLoading, Job::State::kServing,
                                   Job::State::kDraining}) {
      const std::string name = StateName(state);
      const auto count = std::count_if(jobs.begin(), jobs.end(), [&](const JobStatus* job) {
        return job->model == model.name && job->state == name;
      });
      Add(family, {{"model_name", model.name}, {"state", name}}, static_cast<double>(count));
    }
  }
}

void AddRanks(const std::vector<const JobStatus*>& jobs, std::vector<MetricFamily>& families) {
  MetricFamily ranks = Family("skein_ranks", MetricType::Gauge, "Attached ranks by state.");
  MetricFamily ages = Family("skein_rank_heartbeat_age_seconds", MetricType::Gauge,
                             "Since a rank was last heard of.");
  MetricFamily times =
      Family("skein_rank_time_seconds_total", MetricType::Counter,
             "Where a rank's time went since it was ready for steps: it computes, transfers, waits "
             "for other ranks in a step (bubble), or waits for the next order.");
  for (const JobStatus* const job : jobs) {
    for (const std::string state : {"attached", "loading", "ready", "idle"}) {
      Add(ranks, {{"job_id", job->id}, {"state", state}},
          static_cast<double>(
              std::count_if(job->ranks.begin(), job->ranks.end(),
                            [&](const RankStatus& rank) { return rank.state == state; })));
    }
    for (const RankStatus& rank : job->ranks) {
      Add(ages, {{"host", rank.host}, {"job_id", job->id}, {"rank", absl::StrCat(rank.rank)}},
          absl::ToDoubleSeconds(rank.heartbeat_age));
      if (!rank.times.has_value()) continue;
      for (const auto& [activity, time] :
           {std::pair("compute", rank.times->compute), std::pair("transfer", rank.times->transfer),
            std::pair("bubble", rank.times->bubble), std::pair("wait", rank.times->waiting)}) {
        Add(times,
            {{"activity", activity},
             {"host", rank.host},
             {"job_id", job->id},
             {"rank", absl::StrCat(rank.rank)}},
            absl::ToDoubleSeconds(time));
      }
    }
  }
  families.push_back(std::move(ranks));
  families.push_back(std::move(ages));
  families.push_back(std::move(times));
}

}  // namespace

std::vector<MetricFamily> FamiliesOf(const MetricsSnapshot& snapshot, const std::string& version) {
  std::vector<const JobStatus*> jobs;
  // Series must not come twice, but two jobs may claim one id.
  std::vector<const JobStatus*> named;
  std::set<std::string> ids;
  for (const JobStatus& job : snapshot.jobs) {
    if (job.over_for.has_value()) continue;
    jobs.push_back(&job);
    if (ids.insert(job.id).second) named.push_back(&job);
  }
  std::vector<MetricFamily> families = {
      Info(snapshot, version),
      OfModels(snapshot, "skein_num_requests_running", MetricType::Gauge,
               "Requests that replicas have.", &Dispatcher::Counts::running),
      OfModels(snapshot, "skein_num_requests_waiting", MetricType::Gauge,
               "Requests that wait for a replica.", &Dispatcher::Counts::queued),
      OfModels(snapshot, "skein_migrations_total", MetricType::Counter,
               "Requests that went on with another replica in the middle of an answer.",
               &Dispatcher::Counts::migrations),
  };
  AddJobs(snapshot, jobs, families);
  AddRanks(named, families);
  AddReplicas(named, families);
  return families;
}

}  // namespace skein::coordinator
