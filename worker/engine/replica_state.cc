#include "worker/engine/replica_state.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::worker {
namespace {

using serving::Finish;

// Each observation but the first has this weight in the observed rate of prefill.
constexpr double kObservationWeight = 0.2;
// Steps with fewer rows are bound by reading weights, and say nothing of prefill.
constexpr int64_t kPrefillRows = 64;

}  // namespace

ReplicaState::ReplicaState(const ReplicaLimits& limits)
    : limits_(limits),
      rates_(limits.rates),
      tables_(limits.pages, limits.swap_pages, limits.scheduler.page_size,
              limits.scheduler.window) {
  for (int32_t slot = limits.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

ReplicaState::~ReplicaState() = default;

// ---- Requests ----

ReplicaState::Sequence& ReplicaState::NewSequence(std::shared_ptr<const serving::Request> request,
                                                  const serving::AnswerStart& start,
                                                  absl::Time now) {
  const SequenceId id = next_id_;
  ++next_id_;
  requests_[request->id].push_back(id);
  Sequence& sequence = sequences_[id];
  sequence.id = id;
  sequence.arrival = now - request->waited;
  sequence.answer = start.index;
  sequence.mu = start.mu;
  sequence.tokens.reserve(request->prompt.size() + request->max_tokens);
  sequence.tokens = request->prompt;
  sequence.tokens.insert(sequence.tokens.end(), start.output.begin(), start.output.end());
  sequence.request = std::move(request);
  return sequence;
}

void ReplicaState::Add(serving::Request request, absl::Time now) {
  if (absl::Status valid = CheckRequest(request, limits_); !valid.ok()) {
    outputs_.push_back({.request_id = request.id,
                        .finish = Finish::kFailed,
                        .error = std::string(valid.message())});
    return;
  }
  const auto shared = std::make_shared<const serving::Request>(std::move(request));
  Sequence* parent = nullptr;
  bool first = true;
  for (const serving::AnswerStart& answer : shared->answers) {
    Sequence& sequence = NewSequence(shared, answer, now);
    if (std::exchange(first, false) && shared->prompt_logprobs >= 0) sequence.logprobs_given = 0;
    // Only answers that begin together begin at the same state; others meet in the prefix cache.
    if (!answer.output.empty()) continue;
    if (parent == nullptr) {
      parent = &sequence;
    } else {
      sequence.state = Sequence::State::kForking;
      parent->forks.push_back(sequence.id);
    }
  }
}

void ReplicaState::End(Sequence& sequence) {
  GiveSlotBack(sequence);
  tables_.Release(sequence.table);
  std::vector<SequenceId>& siblings = requests_.at(sequence.request->id);
  std::erase(siblings, sequence.id);
  if (siblings.empty()) requests_.erase(sequence.request->id);
  sequences_.erase(sequence.id);
}

void ReplicaState::Cancel(serving::RequestId id, std::optional<int32_t> answer) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  bool ended = false;
  for (SequenceId sequence_id : std::vector(found->second)) {
    Sequence& sequence = sequences_.at(sequence_id);
    if (answer.has_value()) {
      const bool shares = sequence.state == Sequence::State::kForking || !sequence.forks.empty();
      if (sequence.answer != *answer || shares) continue;
    }
    End(sequence);
    ended = true;
  }
  if (!ended) return;
  outputs_.push_back(
      {.request_id = id, .answer = answer.value_or(0), .finish = Finish::kCancelled});
}

void ReplicaState::EndRequest(serving::RequestId id) {
  for (SequenceId sequence : std::vector(requests_.at(id))) End(sequences_.at(sequence));
}

void ReplicaState::CancelAll() {
  while (!sequences_.empty()) End(sequences_.begin()->second);
  outputs_.clear();
}

// ---- Orders ----

SequenceView ReplicaState::ViewOf(Sequence& sequence) {
  const serving::Request& request = *sequence.request;
  SequenceView view = {.id = sequence.id,
                       .priority = request.priority,
                       .arrival = sequence.arrival,
                       .deadline = request.deadline,
                       .slots = sequence.slots(),
                       .length = sequence.length(),
                       .computed = sequence.computed,
                       .all_logits = sequence.wants_logprobs(sequence.computed),
                       .pending = sequence.in_flight > 0};
  const PageTable& table = sequence.table;
  if (sequence.state == Sequence::State::kRunning) {
    view.pages = table.held();
    view.gone_pages = table.gone;
    view.own_pages = tables_.CountOwn(table);
    view.copies = tables_.CopiesOnWrite(table, sequence.computed);
  } else if (!table.swapped.empty()) {
    view.swapped = true;
    view.pages = static_cast<int64_t>(table.swapped.size());
    view.gone_pages = table.gone;
  } else {
    if (!sequence.needs_all_rows() && sequence.hit_version != tables_.version()) {
      // The last token is computed in any case: it gives the next one.
      sequence.hit = tables_.Find(sequence.tokens, sequence.known() - 1, sequence.hit);
      sequence.hit_version = tables_.version();
    }
    view.pages = sequence.hit.pages - sequence.hit.first;
    view.gone_pages = sequence.hit.first;
    view.idle_pages = sequence.hit.idle;
    view.computed = sequence.hit.pages * limits_.scheduler.page_size;
  }
  return view;
}

StepPlan ReplicaState::Plan(absl::Time now) {
  std::vector<SequenceView> waiting, running;
  running.reserve(sequences_.size());
  for (auto& [id, sequence] : sequences_) {
    if (sequence.state == Sequence::State::kWaiting) {
      waiting.push_back(ViewOf(sequence));
    } else if (sequence.state == Sequence::State::kRunning &&
               sequence.length() < sequence.max_length()) {  // its last token is not on its way
      running.push_back(ViewOf(sequence));
    }
  }
  return Schedule({.now = now,
                   .waiting = waiting,
                   .running = running,
                   .free_slots = static_cast<int32_t>(free_slots_.size()),
                   .free_pages = tables_.available(),
                   .free_swap_pages = tables_.swap().free_pages(),
                   .rates = rates_},
                  limits_.scheduler);
}

absl::StatusOr<std::optional<StepOrder>> ReplicaState::NextOrder(absl::Time now) {
  const StepPlan plan = Plan(now);
  if (plan.micro_batches.empty() && plan.preemptions.empty() && plan.admissions.empty()) {
    return std::nullopt;
  }
  StepOrder order{.step = counters_.steps++};
  for (const Preemption& preemption : plan.preemptions) {
    SKEIN_RETURN_IF_ERROR(Preempt(preemption, order));
  }
  // Bringing pages back may evict: those that are shared are taken first.
  for (const bool swapped : {false, true}) {
    for (SequenceId id : plan.admissions) {
      Sequence& sequence = sequences_.at(id);
      if (sequence.state == Sequence::State::kWaiting &&
          !sequence.table.swapped.empty() == swapped) {
        SKEIN_RETURN_IF_ERROR(Admit(sequence, order));
      }
    }
  }
  Outstanding outstanding{.step = order.step};
  if (outstanding_.empty()) {
    outstanding.counts.behind_nothing = 1;
  } else if (outstanding_.back().decodes_alone()) {
    outstanding.counts.behind_decodes = 1;
  }
  for (const std::vector<Chunk>& chunks : plan.micro_batches) {
    std::vector<ChunkOrder>& batch = order.micro_batches.emplace_back();
    batch.reserve(chunks.size());
    outstanding.chunks.reserve(outstanding.chunks.size() + chunks.size());
    for (const Chunk& chunk : chunks) {
      SKEIN_RETURN_IF_ERROR(Compute(chunk, order, batch));
      outstanding.Count(chunk, batch.back().prompt_logprobs >= 0);
      outstanding.chunks.push_back(
          {batch.back().slot, chunk.id, chunk.draws, sequences_.at(chunk.id).passes});
    }
  }
  // Prefixes are kept last, and pages given back behind windows: a page that is given up must not
  // be taken again in this order.
  for (const std::vector<Chunk>& chunks : plan.micro_batches) {
    for (const Chunk& chunk : chunks) {
      Sequence& sequence = sequences_.at(chunk.id);
      KeepPrefix(sequence);
      if (!sequence.forks.empty() && sequence.computed >= sequence.prompt()) Fork(sequence);
      tables_.GiveBack(sequence.table, sequence.computed);
    }
  }
  outstanding_.push_back(std::move(outstanding));
  return order;
}

absl::Status ReplicaState::Preempt(const Preemption& preemption, StepOrder& order) {
  Sequence& sequence = sequences_.at(preemption.id);
  sequence.state = Sequence::State::kWaiting;
  GiveSlotBack(sequence);
  for (SequenceId id : sequence.forks) GiveSlotBack(sequences_.at(id));
  if (preemption.swap) {
    ++counters_.preemptions_swapped;
    return tables_.SwapOut(sequence.table, order.copies);
  }
  ++counters_.preemptions_recomputed;
  tables_.Release(sequence.table);
  sequence.hit = {};
  sequence.hit_version = 0;
  sequence.computed = 0;
  sequence.pooled = {};
  ++sequence.passes;
  return absl::OkStatus();
}

// ---- Slots ----

// The ranks draw the sequence's tokens from what is known of it by now.
void ReplicaState::TakeSlot(Sequence& sequence, StepOrder& order) {
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  sequence.slot_length = 0;
  const serving::Request& request = *sequence.request;
  kernels::SlotStart& start = order.starts.emplace_back(kernels::SlotStart{
      .slot = sequence.slot,
      .output = {sequence.tokens.begin() + sequence.prompt(), sequence.tokens.end()},
      .mu = sequence.mu,
      .sampling = request.sampling});
  start.sampling.answer = static_cast<uint32_t>(sequence.answer);
}

void ReplicaState::GiveSlotBack(Sequence& sequence) {
  if (sequence.slot >= 0) free_slots_.push_back(std::exchange(sequence.slot, -1));
}

absl::Status ReplicaState::Admit(Sequence& sequence, StepOrder& order) {
  if (static_cast<size_t>(sequence.slots()) > free_slots_.size()) {
    return absl::InternalError("the scheduler gave away more slots than there are");
  }
  sequence.state = Sequence::State::kRunning;
  TakeSlot(sequence, order);
  order.starts.back().prompt = sequence.request->prompt;
  for (SequenceId id : sequence.forks) {
    TakeSlot(sequences_.at(id), order);
    order.starts.back().prompt_of = sequence.slot;
  }
  if (!sequence.table.swapped.empty()) return tables_.SwapIn(sequence.table, order.copies);
  tables_.Acquire(sequence.table, sequence.tokens,
                  sequence.needs_all_rows() ? 0 : sequence.known() - 1, sequence.hit);
  sequence.computed =
      static_cast<int64_t>(sequence.table.pages.size()) * limits_.scheduler.page_size;
  counters_.prompt_tokens += sequence.known();
  counters_.cached_tokens += sequence.computed;
  if (!sequence.cached.has_value()) {
    sequence.cached = std::min(sequence.computed, sequence.prompt());
  }
  return absl::OkStatus();
}

absl::Status ReplicaState::Compute(const Chunk& chunk, StepOrder& order,
                                   std::vector<ChunkOrder>& batch) {
  Sequence& sequence = sequences_.at(chunk.id);
  const int64_t end = chunk.begin + chunk.count;
  SKEIN_RETURN_IF_ERROR(tables_.Extend(sequence.table, chunk.begin, end, order.copies));
  kernels::SlotUpdate update = tables_.Announce(sequence.slot, sequence.table);
  if (sequence.slot_length != chunk.begin) update.length = chunk.begin;
  sequence.slot_length = end;
  if (update.length.has_value() || !update.pages.empty())
    order.updates.push_back(std::move(update));
  ChunkOrder& out = batch.emplace_back(ChunkOrder{.slot = sequence.slot, .draws = chunk.draws});
  if (sequence.wants_logprobs(chunk.begin)) out.prompt_logprobs = sequence.request->prompt_logprobs;
  const serving::Pooling pooling = sequence.request->pooling;
  if (pooling == serving::Pooling::kMean) out.pooled = static_cast<int32_t>(chunk.count);
  if (pooling == serving::Pooling::kLast) out.pooled = chunk.draws ? 1 : 0;
  for (int64_t i = chunk.begin; i < end; ++i) {
    out.tokens.push_back(i < sequence.known() ? sequence.tokens[i] : kernels::kNewestToken);
  }
  sequence.computed = end;
  if (chunk.draws) ++sequence.in_flight;
  return absl::OkStatus();
}

void ReplicaState::Fork(Sequence& parent) {
  for (SequenceId id : std::exchange(parent.forks, {})) {
    Sequence& fork = sequences_.at(id);
    // It computes the prompt's last token once more, which gives it logits to sample from.
    fork.computed = fork.prompt() - 1;
    tables_.Fork(parent.table, fork.computed, fork.table);
    tables_.GiveBack(fork.table, fork.computed);
    fork.state = Sequence::State::kRunning;
  }
}

// ---- Results ----

void ReplicaState::KeepPrefix(Sequence& sequence) {
  const int64_t tokens = std::min(sequence.computed, sequence.known());
  tables_.Keep(sequence.table, absl::MakeSpan(sequence.tokens).first(tokens));
}

serving::Finish ReplicaState::FinishOf(const Sequence& sequence) const {
  const std::vector<int32_t>& eos = sequence.request->eos_token_ids;
  if (std::find(eos.begin(), eos.end(), sequence.tokens.back()) != eos.end()) return Finish::kEos;
  return sequence.known() >= sequence.max_length() ? Finish::kMaxTokens : Finish::kNotFinished;
}

ReplicaState::Sequence* ReplicaState::Find(SequenceId id) {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : &found->second;
}

void ReplicaState::ApplyRow(Sequence& sequence, const kernels::SampledTokens& row) {
  serving::AnswerOutput& output = outputs_.emplace_back();
  output.request_id = sequence.request->id;
  output.answer = sequence.answer;
  output.cached_tokens = sequence.cached.value_or(0);
  sequence.cached = 0;
  --sequence.in_flight;
  for (const serving::SampledToken& token : row.tokens) {
    sequence.tokens.push_back(token.id);
    if (sequence.request->sampling.mirostat_tau > 0) sequence.mu = token.mu;
    output.tokens.push_back(token);
    output.finish = FinishOf(sequence);
    if (output.finish != Finish::kNotFinished) break;  // what was given behind it is surplus
  }
  for (const double sum : sequence.pooled.sum) {
    output.embedding.push_back(static_cast<float>(sum / static_cast<double>(sequence.pooled.rows)));
  }
  if (row.error.empty()) {
    if (sequence.state == Sequence::State::kRunning) KeepPrefix(sequence);
    sequence.hit_version = 0;  // there is more to find
  } else {
    output.finish = Finish::kFailed;
    output.error = row.error;
  }
  if (output.finish != Finish::kNotFinished) End(sequence);
}

void ReplicaState::ApplyLogprobs(Sequence& sequence, const kernels::PromptLogprobs& piece) {
  serving::AnswerOutput output{.request_id = sequence.request->id, .answer = sequence.answer};
  if (!piece.error.empty()) {
    output.finish = Finish::kFailed;
    output.error = piece.error;
    EndRequest(output.request_id);  // answers that wait for this prompt would wait for ever
    return outputs_.push_back(std::move(output));
  }
  for (size_t i = 0; i < piece.tokens.size(); ++i) {
    const int64_t position = piece.first + static_cast<int64_t>(i);
    if (position <= sequence.logprobs_given) continue;  // it was preempted, and is computed again
    sequence.logprobs_given = position;
    output.prompt_logprobs.push_back(piece.tokens[i]);
  }
  if (!output.prompt_logprobs.empty()) outputs_.push_back(std::move(output));
}

absl::StatusOr<const ReplicaState::Worked*> ReplicaState::ChunkOf(const Outstanding& step,
                                                                  int32_t slot) {
  const auto chunk =
      absl::c_find_if(step.chunks, [&](const Worked& of) { return of.slot == slot; });
  if (chunk != step.chunks.end()) return &*chunk;
  return absl::InternalError(absl::StrCat("step ", step.step, " tells of the prompt of slot ", slot,
                                          ", which it did not work on"));
}

absl::Status ReplicaState::Apply(const StepResult& result, absl::Duration duration) {
  if (outstanding_.empty() || outstanding_.front().step != result.step) {
    return absl::InternalError(absl::StrCat("a result of step ", result.step, " came out of turn"));
  }
  const Outstanding expected = std::move(outstanding_.front());
  outstanding_.pop_front();
  std::vector<Worked> sampling;
  sampling.reserve(expected.chunks.size());
  absl::c_copy_if(expected.chunks, std::back_inserter(sampling),
                  [](const Worked& chunk) { return chunk.draws; });
  if (!absl::c_equal(result.sampled, sampling,
                     [](const kernels::SampledTokens& row, const Worked& chunk) {
                       return row.slot == chunk.slot && row.tokens.empty() != row.error.empty();
                     })) {
    return absl::InternalError(absl::StrCat("step ", result.step, " gave ", result.sampled.size(),
                                            " tokens, for other slots than the ", sampling.size(),
                                            " that were to be sampled"));
  }
  // Who is not found has ended meanwhile.
  for (const kernels::PromptLogprobs& piece : result.prompt_logprobs) {
    SKEIN_ASSIGN_OR_RETURN(const Worked* const chunk, ChunkOf(expected, piece.slot));
    if (Sequence* const sequence = Find(chunk->id)) ApplyLogprobs(*sequence, piece);
  }
  for (const kernels::PooledRows& piece : result.pooled) {
    SKEIN_ASSIGN_OR_RETURN(const Worked* const chunk, ChunkOf(expected, piece.slot));
    Sequence* const sequence = Find(chunk->id);
    if (sequence == nullptr || sequence->passes != chunk->pass) continue;
    sequence->pooled.sum.resize(piece.sum.size());
    for (size_t i = 0; i < piece.sum.size(); ++i) sequence->pooled.sum[i] += piece.sum[i];
    sequence->pooled.rows += piece.rows;
  }
  outputs_.reserve(outputs_.size() + sampling.size());
  for (size_t i = 0; i < sampling.size(); ++i) {
    if (Sequence* const sequence = Find(sampling[i].id)) ApplyRow(*sequence, result.sampled[i]);
  }
  CountStep(expected, duration);
  if (expected.rows() >= kPrefillRows && duration > absl::ZeroDuration()) {
    const double rate = static_cast<double>(expected.rows()) / absl::ToDoubleSeconds(duration);
    const double weight = std::exchange(prefill_observed_, true) ? kObservationWeight : 1;
    rates_.prefill_tokens_per_s += weight * (rate - rates_.prefill_tokens_per_s);
  }
  return absl::OkStatus();
}

void ReplicaState::Outstanding::Count(const Chunk& chunk, bool all_logits) {
  const bool goes_on = counts.prompts > 0 && chunk.id == last_prompt;
  if (chunk.count == 1 && chunk.draws && !goes_on) {
    ++counts.decodes;
    counts.decode_context += chunk.begin;
    return;
  }
  if (!goes_on) ++counts.prompts;
  last_prompt = chunk.id;
  counts.rows += chunk.count;
  counts.context += chunk.count * chunk.begin + chunk.count * (chunk.count - 1) / 2;
  counts.outputs += all_logits ? chunk.count : chunk.draws ? 1 : 0;
}

void ReplicaState::CountStep(const Outstanding& step, absl::Duration duration) {
  const serving::PromptSteps& counts = step.counts;
  if (step.rows() == 0) return;  // it moved pages
  if (step.decodes_alone()) {
    ++counters_.decode_steps;
    counters_.decode_rows += counts.decodes;
    counters_.decode_context += counts.decode_context;
    counters_.decode_time += duration;
    return;
  }
  serving::PromptSteps of_step = counts;
  of_step.steps = 1;
  of_step.time = duration;
  counters_.prompt_steps += of_step;
}

StepReport ReplicaState::TakeReport() {
  StepReport report;
  report.answers = std::exchange(outputs_, {});
  report.load = counters_;
  serving::ReplicaLoad& load = report.load;
  for (const auto& [id, sequence] : sequences_) {
    ++(sequence.state == Sequence::State::kRunning ? load.running : load.waiting);
  }
  const PagePool& pool = tables_.pool();
  load.total_pages = pool.total_pages();
  load.free_pages = pool.free_pages();
  load.used_pages = pool.used_pages();
  load.shared_pages = pool.shared_pages();
  load.cached_pages = pool.cached_pages();
  load.total_swap_pages = tables_.swap().total_pages();
  load.free_swap_pages = tables_.swap().free_pages();
  return report;
}

}  // namespace skein::worker
