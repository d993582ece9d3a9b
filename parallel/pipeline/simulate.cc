#include "parallel/pipeline/simulate.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace skein::schedule {
namespace {

struct Message {
  MicroBatchId what;
  absl::Duration sent;
  absl::Duration arrival;
};

// From a stage to the next, or from the last to the first: a sender has one link, since what a
// stage sends is either activations or tokens.
struct Link {
  std::vector<Message> messages;      // in the order of sending
  std::vector<absl::Duration> taken;  // when the first of them were
};

struct Stage {
  size_t order = 0;  // of the schedule
  size_t next = 0;   // instruction of that order
  absl::Duration clock;
  // What lies in the stage's buffers, of which it has one each.
  std::optional<MicroBatchId> received, computed, sampled;
  std::optional<MicroBatchId> unflushed;  // activations that it sent last
  std::vector<Interval> intervals;
};

// Time is each stage's own: a receive takes the later of the receiver's clock and the arrival, so
// that it does not matter which stage is carried on first.
class Simulation {
 public:
  Simulation(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule),
        costs_(costs),
        last_(static_cast<int32_t>(schedule.front().size()) - 1),
        stages_(schedule.front().size()),
        links_(schedule.front().size()) {}

  absl::StatusOr<Timeline> Run() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int32_t stage = 0; stage <= last_; ++stage) {
        for (bool advanced = true; advanced;) {
          SKEIN_ASSIGN_OR_RETURN(advanced, Advance(stage));
          progress |= advanced;
        }
      }
    }
    SKEIN_RETURN_IF_ERROR(CheckEnd());
    return Result();
  }

 private:
  // Carries out one instruction; false when the stage must wait, or is done.
  absl::StatusOr<bool> Advance(int32_t index) {
    Stage& stage = stages_[index];
    if (stage.order == schedule_.size()) return false;
    if (stage.next == 0) {
      const std::optional<absl::Duration> ready = OrderReady(stage.order);
      if (!ready.has_value()) return false;
      stage.clock = std::max(stage.clock, *ready);
    }
    const std::vector<Instruction>& list = schedule_[stage.order][index];
    if (stage.next < list.size()) {
      SKEIN_ASSIGN_OR_RETURN(const bool done, Execute(index, list[stage.next]));
      if (!done) return false;
      ++stage.next;
    }
    if (stage.next == list.size()) {
      SKEIN_RETURN_IF_ERROR(CheckListEnd(index));
      if (index == last_) results_.push_back(stage.clock);
      ++stage.order;
      stage.next = 0;
    }
    return true;
  }

  std::optional<absl::Duration> OrderReady(size_t order) {
    while (orders_.size() <= order) {
      const size_t needed = orders_.size();  // results, before this one can be planned
      const auto in_flight = static_cast<size_t>(costs_.orders_in_flight);
      absl::Duration begin = orders_.empty() ? absl::ZeroDuration() : orders_.back();
      if (needed >= in_flight) {
        if (results_.size() <= needed - in_flight) return std::nullopt;
        begin = std::max(begin, results_[needed - in_flight]);
      }
      orders_.push_back(begin + costs_.planning);
    }
    return orders_[order];
  }

  absl::StatusOr<bool> Execute(int32_t index, const Instruction& instruction) {
    Stage& stage = stages_[index];
    const MicroBatchId& what = instruction.what;
    const auto require = [&](bool held, const char* why) {
      return held ? absl::OkStatus() : Wrong(index, instruction, why);
    };
    switch (instruction.operation) {
      case Operation::kReceiveActivations: {
        SKEIN_RETURN_IF_ERROR(require(index > 0, "the first stage receives none"));
        SKEIN_RETURN_IF_ERROR(require(!stage.received, "what came before is not computed yet"));
        SKEIN_ASSIGN_OR_RETURN(const bool came, Receive(index, instruction));
        if (came) stage.received = what;
        return came;
      }
      case Operation::kReceiveTokens:
        SKEIN_RETURN_IF_ERROR(
            require(index == 0 && last_ > 0, "only the first of several stages receives any"));
        return Receive(index, instruction);
      case Operation::kCompute:
        SKEIN_RETURN_IF_ERROR(
            require(index == 0 || stage.received == what, "its activations are not there"));
        SKEIN_RETURN_IF_ERROR(
            require(index == last_ || !stage.computed, "the last result is not sent yet"));
        stage.received.reset();
        stage.computed = what;
        Work(index, instruction, costs_.compute(index, what));
        return true;
      case Operation::kSendActivations:
        SKEIN_RETURN_IF_ERROR(require(index < last_, "the last stage sends none"));
        SKEIN_RETURN_IF_ERROR(require(stage.computed == what, "they are not computed"));
        stage.computed.reset();
        stage.unflushed = what;
        Send(index, what, costs_.hop);
        return true;
      case Operation::kSample:
        SKEIN_RETURN_IF_ERROR(require(index == last_, "only the last stage samples"));
        SKEIN_RETURN_IF_ERROR(require(stage.computed == what, "it is not computed"));
        SKEIN_RETURN_IF_ERROR(require(!stage.sampled, "the last tokens are not sent yet"));
        stage.computed.reset();
        if (last_ > 0) stage.sampled = what;
        if (costs_.sample > absl::ZeroDuration()) Work(index, instruction, costs_.sample);
        return true;
      case Operation::kSendTokens:
        SKEIN_RETURN_IF_ERROR(
            require(index == last_ && last_ > 0, "only the last of several stages sends any"));
        SKEIN_RETURN_IF_ERROR(require(stage.sampled == what, "they are not sampled"));
        stage.sampled.reset();
        Send(index, what, costs_.token_hop);
        return true;
      case Operation::kFlush: {
        SKEIN_RETURN_IF_ERROR(require(index < last_, "the last stage sends none"));
        SKEIN_RETURN_IF_ERROR(require(stage.unflushed == what, "they are not those sent last"));
        const Link& link = links_[index];
        if (link.taken.size() < link.messages.size()) return false;
        stage.unflushed.reset();
        stage.clock = std::max(stage.clock, link.taken.back());
        return true;
      }
    }
    return Wrong(index, instruction, "no such operation");
  }

  int32_t Before(int32_t index) const { return index == 0 ? last_ : index - 1; }

  absl::StatusOr<bool> Receive(int32_t index, const Instruction& instruction) {
    Link& link = links_[Before(index)];
    if (link.taken.size() == link.messages.size()) return false;
    const Message& message = link.messages[link.taken.size()];
    if (message.what != instruction.what) {
      return Wrong(index, instruction,
                   absl::StrCat("the next message from stage ", Before(index), " is of step ",
                                message.what.step, ", micro-batch ", message.what.micro_batch));
    }
    stages_[index].clock = std::max(stages_[index].clock, message.arrival);
    link.taken.push_back(stages_[index].clock);
    return true;
  }

  void Send(int32_t index, const MicroBatchId& what, absl::Duration hop) {
    Stage& stage = stages_[index];
    links_[index].messages.push_back({what, stage.clock, stage.clock + hop});
    if (!costs_.overlap_sends) stage.clock += hop;
  }

  void Work(int32_t index, const Instruction& instruction, absl::Duration duration) {
    Stage& stage = stages_[index];
    const absl::Duration begin = stage.clock;
    stage.clock += duration;
    stage.intervals.push_back({index, instruction.operation, instruction.what, begin, stage.clock});
  }

  static absl::Status Wrong(int32_t index, const Instruction& instruction, std::string why) {
    return absl::InvalidArgumentError(
        absl::StrCat("stage ", index, " cannot ", ToString(instruction), ": ", why));
  }

  std::string WaitsFor(int32_t index) const {
    const Stage& stage = stages_[index];
    if (stage.next == 0 && stage.order >= orders_.size()) {
      return absl::StrCat("stage ", index, " waits for order ", stage.order,
                          ", planned on the results of order ",
                          stage.order - static_cast<size_t>(costs_.orders_in_flight));
    }
    const Instruction& instruction = schedule_[stage.order][index][stage.next];
    const std::string peer = instruction.operation == Operation::kFlush
                                 ? absl::StrCat(", to stage ", index + 1)
                                 : absl::StrCat(", from stage ", Before(index));
    return absl::StrCat("stage ", index, " waits to ", ToString(instruction), peer);
  }

  // What a stage leaves behind at the end of a list would wait for the next one.
  absl::Status CheckListEnd(int32_t index) const {
    if (index == last_) return absl::OkStatus();
    const Stage& stage = stages_[index];
    const std::optional<MicroBatchId>& what = stage.computed ? stage.computed : stage.unflushed;
    if (!what) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "stage ", index, " ends a step and never ", stage.computed ? "sends" : "flushes",
        " the activations of step ", what->step, ", micro-batch ", what->micro_batch));
  }

  absl::Status CheckEnd() const {
    std::vector<std::string> waits;
    for (int32_t stage = 0; stage <= last_; ++stage) {
      if (stages_[stage].order < schedule_.size()) waits.push_back(WaitsFor(stage));
    }
    if (!waits.empty()) {
      return absl::FailedPreconditionError(absl::StrCat("deadlock: ", absl::StrJoin(waits, "; ")));
    }
    if (const std::optional<MicroBatchId>& what = stages_[last_].sampled) {
      return absl::InvalidArgumentError(absl::StrCat("stage ", last_,
                                                     " never sends the tokens of step ", what->step,
                                                     ", micro-batch ", what->micro_batch));
    }
    return absl::OkStatus();
  }

  // Of the messages that were taken: the rest are the last step's tokens, for a step to come.
  static int64_t MostBuffered(const Link& link) {
    size_t most = 0, gone = 0;
    for (size_t sent = 0; sent < link.taken.size(); ++sent) {
      while (gone < sent && link.taken[gone] <= link.messages[sent].sent) ++gone;
      most = std::max(most, sent + 1 - gone);
    }
    return static_cast<int64_t>(most);
  }

  Timeline Result() {
    Timeline timeline;
    timeline.stages = last_ + 1;
    for (int32_t stage = 0; stage <= last_; ++stage) {
      const std::vector<Interval>& intervals = stages_[stage].intervals;
      timeline.intervals.insert(timeline.intervals.end(), intervals.begin(), intervals.end());
      timeline.buffered_messages =
          std::max(timeline.buffered_messages, MostBuffered(links_[stage]));
    }
    const Link& tokens = links_[last_];
    timeline.tokens_left = static_cast<int64_t>(tokens.messages.size() - tokens.taken.size());
    return timeline;
  }

  const Schedule& schedule_;
  const Costs& costs_;
  const int32_t last_;  // stage
  std::vector<Stage> stages_;
  std::vector<Link> links_;              // by sender
  std::vector<absl::Duration> orders_;   // when each was on all stages
  std::vector<absl::Duration> results_;  // when each order was over on the last stage
};

}  // namespace

absl::StatusOr<Timeline> Simulate(const Schedule& schedule, const Costs& costs) {
  if (costs.orders_in_flight < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("orders_in_flight is ", costs.orders_in_flight, ", must be 1 or more"));
  }
  if (schedule.empty()) return Timeline();
  for (const Order& order : schedule) {
    if (order.empty() || order.size() != schedule.front().size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("an order has lists for ", order.size(), " stages, the first one for ",
                       schedule.front().size(), "; all must have the same, at least 1"));
    }
  }
  return Simulation(schedule, costs).Run();
}

double BubbleFraction(const Timeline& timeline) {
  absl::Duration begin = absl::InfiniteDuration(), end, busy;
  for (const Interval& interval : timeline.intervals) {
    begin = std::min(begin, interval.begin);
    end = std::max(end, interval.end);
    busy += interval.end - interval.begin;
  }
  if (begin >= end) return 0;
  return 1 - absl::FDivDuration(busy, timeline.stages * (end - begin));
}

SteadyState FindSteadyState(const Timeline& timeline) {
  struct Step {
    absl::Duration begin = absl::InfiniteDuration();
    absl::Duration busy;
  };
  std::map<int64_t, Step> steps;
  for (const Interval& interval : timeline.intervals) {
    Step& step = steps[interval.what.step];
    step.begin = std::min(step.begin, interval.begin);
    step.busy += interval.end - interval.begin;
  }
  if (steps.size() < 2) return {};
  const auto last = std::prev(steps.end());
  const auto first = std::prev(last, static_cast<int64_t>(steps.size()) / 2);
  absl::Duration busy;
  for (auto step = first; step != last; ++step) busy += step->second.busy;
  const absl::Duration span = last->second.begin - first->second.begin;
  if (span <= absl::ZeroDuration()) return {};
  return {span / static_cast<int64_t>(steps.size() / 2),
          1 - absl::FDivDuration(busy, timeline.stages * span)};
}

}  // namespace skein::schedule
