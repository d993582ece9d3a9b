#include "worker/engine/replica_state.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::worker {

ReplicaState::ReplicaState(const ReplicaLimits& limits) : limits_(limits), pool_(limits.pages) {}

int32_t ReplicaState::Sequence::token(int64_t position) const {
  const auto prompt_size = static_cast<int64_t>(request.prompt.size());
  return position < prompt_size ? request.prompt[position] : request.output[position - prompt_size];
}

SequenceView ReplicaState::Sequence::View() const {
  return {request.id, length(), computed,
          static_cast<int64_t>(request.prompt.size()) + request.max_tokens};
}

absl::Status ReplicaState::Validate(const GenerationRequest& request) const {
  if (request.prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  for (const auto* tokens : {&request.prompt, &request.output}) {
    for (int32_t token : *tokens) {
      if (token < 0 || token >= limits_.vocab_size) {
        return absl::InvalidArgumentError(absl::StrCat(
            "token id ", token, " is outside of the vocabulary of ", limits_.vocab_size));
      }
    }
  }
  if (static_cast<int64_t>(request.output.size()) >= request.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("max_tokens is ", request.max_tokens, ", and ",
                                                   request.output.size(), " were given already"));
  }
  const int64_t longest = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
  if (longest > limits_.context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("a prompt of ", request.prompt.size(), " tokens and an answer of ",
                     request.max_tokens, " exceed the context of ", limits_.context_length));
  }
  if (longest > limits_.pages * limits_.scheduler.page_size) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the KV cache holds ", limits_.pages * limits_.scheduler.page_size,
                     " tokens, but the request may need ", longest));
  }
  return absl::OkStatus();
}

void ReplicaState::Add(GenerationRequest request) {
  if (absl::Status valid = Validate(request); !valid.ok()) {
    outputs_.push_back(
        {.id = request.id, .finish = Finish::kFailed, .error = std::string(valid.message())});
    return;
  }
  waiting_.push_back({.request = std::move(request)});
}

void ReplicaState::Release(const Sequence& sequence) {
  pool_.Free(sequence.pages);
  ended_.push_back(sequence.request.id);
}

void ReplicaState::Cancel(RequestId id) {
  const auto has_id = [id](const Sequence& sequence) { return sequence.request.id == id; };
  if (auto it = std::find_if(waiting_.begin(), waiting_.end(), has_id); it != waiting_.end()) {
    waiting_.erase(it);
  } else if (auto it = std::find_if(running_.begin(), running_.end(), has_id);
             it != running_.end()) {
    Release(*it);
    running_.erase(it);
  } else {
    return;
  }
  outputs_.push_back({.id = id, .finish = Finish::kCancelled});
}

void ReplicaState::CancelAll() {
  for (const Sequence& sequence : running_) Release(sequence);
  running_.clear();
  waiting_.clear();
  outputs_.clear();
}

SequenceStart ReplicaState::Start(Sequence& sequence, int64_t pages) {
  sequence.pages = *pool_.Allocate(pages);  // the scheduler saw that they are free
  const GenerationRequest& request = sequence.request;
  return {request.id, sequence.pages, request.prompt, request.output, request.sampling};
}

StepOrder ReplicaState::NextOrder() {
  std::vector<SequenceView> waiting, running;
  for (const Sequence& sequence : waiting_) waiting.push_back(sequence.View());
  for (const Sequence& sequence : running_) running.push_back(sequence.View());
  const StepPlan plan = Schedule({waiting, running, pool_.free_pages()}, limits_.scheduler);

  StepOrder order{.step = steps_++, .ended = std::exchange(ended_, {})};
  for (const Admission& admission : plan.admissions) {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    order.started.push_back(Start(running_.back(), admission.pages));
  }
  std::unordered_map<RequestId, Sequence*> by_id;
  for (Sequence& sequence : running_) by_id[sequence.request.id] = &sequence;
  for (const std::vector<Chunk>& chunks : plan.micro_batches) {
    std::vector<ChunkOrder>& batch = order.micro_batches.emplace_back();
    for (const Chunk& chunk : chunks) {
      Sequence& sequence = *by_id.at(chunk.id);
      ChunkOrder& out = batch.emplace_back(
          ChunkOrder{.id = chunk.id, .begin = chunk.begin, .sample = chunk.sample});
      for (int64_t i = 0; i < chunk.count; ++i)
        out.tokens.push_back(sequence.token(chunk.begin + i));
      sequence.computed = chunk.begin + chunk.count;
    }
  }
  return order;
}

Finish ReplicaState::FinishOf(const Sequence& sequence) const {
  const GenerationRequest& request = sequence.request;
  if (std::count(request.eos_token_ids.begin(), request.eos_token_ids.end(),
                 request.output.back()) > 0) {
    return Finish::kEos;
  }
  return static_cast<int64_t>(request.output.size()) >= request.max_tokens ? Finish::kMaxTokens
                                                                           : Finish::kNotFinished;
}

absl::Status ReplicaState::Apply(const std::vector<SampledRow>& sampled) {
  for (const SampledRow& row : sampled) {
    const auto it = std::find_if(running_.begin(), running_.end(),
                                 [&](const Sequence& s) { return s.request.id == row.id; });
    if (it == running_.end() || it->computed != it->length()) {
      return absl::InternalError(
          absl::StrCat("a step gave a token for request ", row.id, ", which asked for none"));
    }
    SequenceOutput output{.id = row.id};
    if (row.error.empty()) {
      it->request.output.push_back(row.token.id);
      output.tokens.push_back(row.token);
      output.finish = FinishOf(*it);
    } else {
      output.finish = Finish::kFailed;
      output.error = row.error;
    }
    if (output.finish != Finish::kNotFinished) {
      Release(*it);
      running_.erase(it);
    }
    outputs_.push_back(std::move(output));
  }
  return absl::OkStatus();
}

StepReport ReplicaState::TakeReport() {
  return {.sequences = std::exchange(outputs_, {}),
          .load = {.running = static_cast<int32_t>(running_.size()),
                   .waiting = static_cast<int32_t>(waiting_.size()),
                   .free_pages = pool_.free_pages(),
                   .total_pages = pool_.total_pages(),
                   .steps = steps_}};
}

}  // namespace skein::worker
