#include "kernels/host/executable.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::kernels {

HostExecutable::HostExecutable(const Program& program, const Limits& limits,
                               const Bindings& bindings)
    : program_(program),
      limits_(limits),
      bindings_(bindings),
      expert_counts_(program),
      masks_(limits.slots) {}

absl::Status HostExecutable::AllocateBuffers() {
  const BufferPlaces places = PlaceBuffers(program_, limits_);
  SKEIN_ASSIGN_OR_RETURN(memory_, HostMemory::Allocate(places.bytes, "a Program's buffers"));
  for (int i = 0; i < kBatches; ++i) {
    for (int64_t place : places.buffers[i]) {
      storage_[i].push_back(reinterpret_cast<float*>(memory_.data() + place));
    }
    for (int64_t place : places.hops[i]) {
      hops_[i].push_back(place < 0 ? nullptr : memory_.data() + place);
    }
  }
  data_ = storage_[0];
  return absl::OkStatus();
}

absl::Status HostExecutable::Init() {
  const KvSpec* const kv_spec = kv() == nullptr ? nullptr : &kv()->spec();
  const KvSpec* const swap_spec = bindings_.swap == nullptr ? nullptr : &bindings_.swap->spec();
  SKEIN_RETURN_IF_ERROR(ValidateProgram(program_, limits_, kv_spec));
  SKEIN_RETURN_IF_ERROR(ValidateBindings(program_, bindings_));
  rules_ = RulesOf(program_, limits_, kv_spec, swap_spec);
  slots_.emplace(limits_, kv_spec == nullptr ? 0 : kv_spec->page_size);
  if (program_.logits >= 0) {
    SKEIN_ASSIGN_OR_RETURN(sampler_, Sampler::Create(program_, limits_, bindings_.collectives));
  }
  return AllocateBuffers();
}

absl::Status HostExecutable::WarmUp() {
  if (program_.pooled.in >= 0) {
    SKEIN_ASSIGN_OR_RETURN(pooler_, Pooler::Create(program_, *bindings_.weights));
  }
  warm_ = true;
  return absl::OkStatus();
}

View HostExecutable::port(BufferId id, int i) {
  if (id < 0 || id >= static_cast<BufferId>(data_.size()) || !program_.buffers[id].port) return {};
  if (hops_[i][id] != nullptr) {
    return {hops_[i][id], program_.hop_dtype, MaxRows(id), cols(id)};
  }
  return {storage_[i][id], DType::kF32, MaxRows(id), cols(id)};
}

void HostExecutable::TakeInput(int i) {
  const BufferId id = program_.input;
  if (id < 0 || hops_[i][id] == nullptr) return;
  ConvertToFloat(program_.hop_dtype, hops_[i][id], rows_.rows() * cols(id), data(id));
}

void HostExecutable::GiveOutput(int i) {
  const BufferId id = program_.output;
  if (id < 0 || hops_[i][id] == nullptr) return;
  ConvertFromFloat(program_.hop_dtype, data(id), rows_.rows() * cols(id), hops_[i][id]);
}

absl::Status HostExecutable::RunOps() {
  Collectives* const collectives = bindings_.collectives;
  for (const Op& op : program_.ops) {
    if (const auto* reduce = std::get_if<AllReduceOp>(&op)) {
      const BufferId id = reduce->buffer;
      const View view = {data(id), DType::kF32, RowsOf(id, rows_), cols(id)};
      if (view.elements() == 0) continue;  // on every rank: all run the same batch
      SKEIN_RETURN_IF_ERROR(collectives->AllReduce(view, kHostStream));
      Wrote(id);
    } else {
      Compute(op, rows_);
      if (const auto* route = std::get_if<RouteOp>(&op)) {
        expert_counts_.Add(static_cast<size_t>(&op - program_.ops.data()), data(route->out),
                           RowsOf(route->out, rows_));
      }
      if (collectives != nullptr) SKEIN_RETURN_IF_ERROR(collectives->Progress());
    }
  }
  return absl::OkStatus();
}

absl::Status HostExecutable::CopyPages(const Batch& batch) {
  for (const PageCopy& copy : batch.copies) {
    const bool out = copy.kind == PageCopy::Kind::kSwapOut;
    const bool in = copy.kind == PageCopy::Kind::kSwapIn;
    KvCache& to = out ? *bindings_.swap : *kv();
    SKEIN_RETURN_IF_ERROR(to.CopyPage(in ? *bindings_.swap : *kv(), copy.from, copy.to));
  }
  return absl::OkStatus();
}

absl::Status HostExecutable::Sample(int i) {
  const Batch& batch = batches_[i];
  BatchResult& result = results_[i];
  const auto logits = [&](int64_t output) {
    return absl::MakeConstSpan(row(program_.logits, output), program_.vocab_tokens());
  };
  const auto first_position = [&](int64_t sequence) {
    return int64_t{rows_.positions[rows_.row_begin[sequence]]};
  };
  const auto for_each = [&](int64_t tasks, absl::FunctionRef<void(int64_t)> task) {
    ForEach(tasks, task);
  };
  const auto meanwhile = [this] {
    return bindings_.collectives == nullptr ? absl::OkStatus() : bindings_.collectives->Progress();
  };
  const auto mask = [&](int32_t slot) { return masks_.Await(i, slot, meanwhile); };
  SKEIN_RETURN_IF_ERROR(
      sampler_->Sample(batch,
                       {.logits = logits,
                        .made = [](int64_t) -> const DeviceDraw* { return nullptr; },
                        .first_position = first_position,
                        .for_each = for_each,
                        .mask = mask},
                       result));
  masks_.Clear(i);
  auto drawn = result.sampled.begin();
  for (const BatchSequence& sequence : batch.sequences) {
    if (!sequence.draws) continue;
    const auto tokens = static_cast<int64_t>(drawn->tokens.size());
    slots_->SetToken(drawn->slot, tokens == 0 ? 0 : drawn->tokens.back().id);
    slots_->TakeBack(drawn->slot, sequence.guesses - std::max<int64_t>(tokens - 1, 0));
    ++drawn;
  }
  return absl::OkStatus();
}

void HostExecutable::Pool(int i) {
  pooler_->Pool(
      batches_[i], DType::kF32, reinterpret_cast<const std::byte*>(data(program_.pooled.in)),
      [this](int64_t tasks, absl::FunctionRef<void(int64_t)> task) { ForEach(tasks, task); },
      results_[i].pooled);
}

void HostExecutable::SetTokens(absl::Span<const int32_t> slots, absl::Span<const int32_t> tokens) {
  for (size_t i = 0; i < slots.size(); ++i) slots_->SetToken(slots[i], tokens[i]);
}

void HostExecutable::Abort(const absl::Status& why) {
  masks_.Fail(why);
  MutexLock lock(&mutex_);
  if (aborted_.ok()) aborted_ = why;
}

absl::StatusOr<Ticket> HostExecutable::Enqueue(int i) {
  {
    MutexLock lock(&mutex_);
    SKEIN_RETURN_IF_ERROR(aborted_);
  }
  if (!warm_) return absl::FailedPreconditionError("a batch came before WarmUp");
  const Batch& batch = batches_[i];
  SKEIN_RETURN_IF_ERROR(ValidateBatch(rules_, batch));
  // The sampler keeps what it has taken in when the slots refuse: after an error nothing more runs.
  if (sampler_.has_value()) SKEIN_RETURN_IF_ERROR(sampler_->Update(batch));
  SKEIN_RETURN_IF_ERROR(slots_->Update(batch, [this](const SlotUpdate& update) {
    if (sampler_.has_value()) sampler_->TakeBack(update);
  }));
  SKEIN_RETURN_IF_ERROR(slots_->Fill(batch, rows_));
  SKEIN_RETURN_IF_ERROR(CopyPages(batch));
  data_ = storage_[i];
  if (bindings_.collectives != nullptr) bindings_.collectives->BeginBatch(batch);
  TakeInput(i);
  Begin(rows_);
  SKEIN_RETURN_IF_ERROR(RunOps());
  GiveOutput(i);
  if (sampler_.has_value()) SKEIN_RETURN_IF_ERROR(Sample(i));
  if (pooler_.has_value()) Pool(i);
  return ++tickets_;
}

}  // namespace skein::kernels
