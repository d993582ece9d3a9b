#include "parallel/pipeline/shared_cores.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>

namespace skein::schedule {
namespace {

struct Arrival {
  absl::Duration at;
  size_t stage = 0;
  MicroBatchId what;
};

struct Stage {
  std::deque<MicroBatchId> waiting;
  std::optional<Interval> now;
  absl::Duration left;
};

using Core = std::vector<size_t>;  // the stages that compute on it

class Decoding {
 public:
  Decoding(const SharedCores& of, int32_t micro_batches, int32_t steps)
      : of_(of),
        steps_(steps),
        stages_(of.compute.size()),
        cores_(*std::max_element(of.core.begin(), of.core.end()) + 1),
        intervals_(of.compute.size()) {
    for (int32_t i = 0; i < micro_batches; ++i) Send({absl::ZeroDuration(), 0, {0, i}});
  }

  Timeline Run() {
    for (;;) {
      Deliver();
      const absl::Duration next = NextEvent();
      if (next == absl::InfiniteDuration()) break;
      Work(next - now_);
      now_ = next;
      for (Core& core : cores_) Finish(core);
    }
    Timeline timeline = {.stages = static_cast<int32_t>(stages_.size())};
    for (const std::vector<Interval>& of_stage : intervals_) {
      timeline.intervals.insert(timeline.intervals.end(), of_stage.begin(), of_stage.end());
    }
    return timeline;
  }

 private:
  // In the order of arrival, which of the same time is that of sending.
  void Send(const Arrival& arrival) {
    const auto later = std::find_if(arrivals_.begin(), arrivals_.end(),
                                    [&](const Arrival& other) { return other.at > arrival.at; });
    arrivals_.insert(later, arrival);
  }

  void Deliver() {
    while (!arrivals_.empty() && arrivals_.front().at <= now_) {
      const Arrival arrival = arrivals_.front();
      arrivals_.pop_front();
      stages_[arrival.stage].waiting.push_back(arrival.what);
      if (!stages_[arrival.stage].now) Begin(arrival.stage);
    }
  }

  void Begin(size_t index) {
    Stage& stage = stages_[index];
    stage.now = {
        .stage = static_cast<int32_t>(index), .what = stage.waiting.front(), .begin = now_};
    stage.waiting.pop_front();
    stage.left = of_.compute[index];
    cores_[of_.core[index]].push_back(index);
  }

  absl::Duration NextEvent() const {
    absl::Duration next = arrivals_.empty() ? absl::InfiniteDuration() : arrivals_.front().at;
    for (const Core& core : cores_) {
      for (const size_t stage : core) {
        next = std::min(next, now_ + stages_[stage].left * static_cast<int64_t>(core.size()));
      }
    }
    return next;
  }

  void Work(absl::Duration time) {
    for (const Core& core : cores_) {
      for (const size_t stage : core) {
        stages_[stage].left -= time / static_cast<int64_t>(core.size());
      }
    }
  }

  void Finish(Core& core) {
    std::vector<size_t> done;
    for (const size_t stage : core) {
      if (stages_[stage].left <= absl::ZeroDuration()) done.push_back(stage);
    }
    for (const size_t index : done) {
      Stage& stage = stages_[index];
      stage.now->end = now_;
      intervals_[index].push_back(*stage.now);
      MicroBatchId what = stage.now->what;
      if (index + 1 < stages_.size()) {
        Send({now_ + of_.hop, index + 1, what});
      } else if (++what.step < steps_) {
        Send({now_ + of_.token_hop, 0, what});
      }
      stage.now.reset();
      core.erase(std::find(core.begin(), core.end(), index));
      if (!stage.waiting.empty()) Begin(index);
    }
  }

  const SharedCores& of_;
  const int32_t steps_;
  absl::Duration now_;
  std::deque<Arrival> arrivals_;
  std::vector<Stage> stages_;
  std::vector<Core> cores_;
  std::vector<std::vector<Interval>> intervals_;  // by stage
};

}  // namespace

Timeline SimulateDecodes(const SharedCores& cores, int32_t micro_batches, int32_t steps) {
  return Decoding(cores, micro_batches, steps).Run();
}

}  // namespace skein::schedule
