// What a cluster tells of its replicas' steps: what they take beside what their plans predict.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/cluster/job.h"
#include "coordinator/cluster/prediction_watch.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/predict_plan.h"
#include "spdlog/spdlog.h"
#include "topology/machine.h"
#include "topology/topology.h"

namespace skein::coordinator {
namespace {

void TellRemark(const Job& job, size_t replica, const PredictionWatch::Remark& remark) {
  const std::string what = absl::StrCat("replica ", replica, " of job ", job.id, ": ",
                                        FormatComparison(remark.comparison));
  if (!remark.warns) return spdlog::info("{}", what);
  spdlog::warn("{}, for a minute; {}", what,
               LikelyCause(remark.comparison, job.plan->prediction.measured, HasGpus(job)));
}

}  // namespace

std::vector<StepPredictor> Cluster::PredictorsOf(const Job& job) {
  // The job's plan is not changed any more.
  struct Planned {
    std::shared_ptr<const JobModel> model;
    topology::Machine machine;
    topology::Topology topology;
    plan::Plan plan;
  };
  const auto of = std::make_shared<const Planned>(
      Planned{job.model, job.machine, topology::TopologyOf(job.machine), *job.plan});
  std::vector<StepPredictor> predictors;
  for (int32_t i = 0; i < job.plan->layout.dp_size; ++i) {
    predictors.emplace_back([of, i](const plan::StepMeans& means) {
      return plan::PredictStep(of->machine, of->topology, of->model->facts.config, of->plan, i,
                               means)
          .value_or(absl::ZeroDuration());
    });
  }
  return predictors;
}

void Cluster::CompareSteps() {
  // Hostile reports shall not keep this thread busy.
  const absl::Time now = clock_->Now();
  if (now - last_comparison_ < absl::Seconds(1)) return;
  last_comparison_ = now;
  struct Seconds {
    JobNumber job;
    size_t replica = 0;
    StepPredictor predictor;
    ReportedSteps steps;
  };
  std::vector<Seconds> seconds;
  {
    MutexLock lock(&mutex_);
    for (auto& [number, job] : jobs_) {
      if (!job.serves()) continue;
      for (size_t i = 0; i < job.replicas.size(); ++i) {
        for (ReportedSteps& steps : job.replicas[i].steps.GiveSeconds()) {
          seconds.push_back({number, i, job.replicas[i].predictor, std::move(steps)});
        }
      }
    }
  }
  for (const Seconds& of : seconds) {
    const std::optional<StepComparison> newest = Compare(of.steps, of.predictor);
    if (!newest.has_value()) continue;
    MutexLock lock(&mutex_);
    const auto job = jobs_.find(of.job);
    if (job == jobs_.end()) continue;
    const auto remark = job->second.replicas[of.replica].steps.Add(of.steps.kind, *newest);
    if (remark.has_value()) TellRemark(job->second, of.replica, *remark);
  }
}

}  // namespace skein::coordinator
