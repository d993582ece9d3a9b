#include "kernels/host/slots.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::kernels {

SlotStates::SlotStates(const Limits& limits, int64_t page_size)
    : page_size_(page_size),
      stride_(limits.slot_pages),
      states_(limits.slots),
      page_tables_(limits.slots * limits.slot_pages) {}

void SlotStates::SetLength(const SlotUpdate& update,
                           absl::FunctionRef<void(const SlotUpdate&)> taken_back) {
  State& state = states_[update.slot];
  if (*update.length < state.length) {
    if (page_size_ > 0) {
      state.pages = std::min(state.pages, (*update.length + page_size_ - 1) / page_size_);
    }
    taken_back(update);
  }
  state.length = *update.length;
}

absl::Status SlotStates::Update(const Batch& batch,
                                absl::FunctionRef<void(const SlotUpdate&)> taken_back) {
  for (const SlotStart& start : batch.starts) {
    states_[start.slot] = {.last_fill = states_[start.slot].last_fill};
  }
  for (const SlotUpdate& update : batch.updates) {
    State& state = states_[update.slot];
    if (update.length.has_value()) SetLength(update, taken_back);
    if (update.pages.empty()) continue;
    if (update.first_page > state.pages) {
      return absl::InvalidArgumentError(absl::StrCat("slot ", update.slot, ": a hole before page ",
                                                     update.first_page, "; it has ", state.pages));
    }
    std::copy(update.pages.begin(), update.pages.end(),
              page_tables_.begin() + update.slot * stride_ + update.first_page);
    state.pages = update.first_page + static_cast<int64_t>(update.pages.size());
  }
  return absl::OkStatus();
}

// Positions [begin, end) are written.
absl::Status SlotStates::NotePages(const BatchSequence& sequence, int64_t begin, int64_t end) {
  const int32_t* const pages = page_tables_.data() + sequence.slot * stride_;
  for (int64_t i = begin / page_size_; i * page_size_ < end; ++i) {
    const size_t page = pages[i];
    if (page >= written_in_.size()) written_in_.resize(page + 1);
    if (written_in_[page] == fills_) {
      return absl::InvalidArgumentError(absl::StrCat("slot ", sequence.slot, " writes to page ",
                                                     page, ", to which the batch writes before"));
    }
    written_in_[page] = fills_;
  }
  return absl::OkStatus();
}

absl::Status SlotStates::AddRows(const BatchSequence& sequence, HostBatch& out) {
  State& state = states_[sequence.slot];
  const int64_t begin = state.length;
  const int64_t end = begin + sequence.rows;
  if (page_size_ > 0 && end > state.pages * page_size_) {
    return absl::InvalidArgumentError(absl::StrCat("slot ", sequence.slot, ": positions ", begin,
                                                   " to ", end, ", and ", state.pages, " pages of ",
                                                   page_size_));
  }
  if (state.last_fill == fills_) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot ", sequence.slot, " stands in a batch twice"));
  }
  state.last_fill = fills_;
  if (page_size_ > 0) SKEIN_RETURN_IF_ERROR(NotePages(sequence, begin, end));
  state.length = end;
  const int32_t* const pages = page_tables_.data() + sequence.slot * stride_;
  for (int64_t position = begin; position < end; ++position) {
    int32_t& token = out.token_ids[out.positions.size()];
    if (token == kNewestToken) token = state.token;
    out.positions.push_back(static_cast<int32_t>(position));
    if (page_size_ > 0) {
      out.kv_slots.push_back(int64_t{pages[position / page_size_]} * page_size_ +
                             position % page_size_);
    }
  }
  const int64_t rows = out.rows();
  for (int64_t row = rows - sequence.outputs; row < rows; ++row) {
    out.output_rows.push_back(static_cast<int32_t>(row));
  }
  out.slots.push_back(sequence.slot);
  out.row_begin.push_back(static_cast<int32_t>(rows));
  out.context_lengths.push_back(static_cast<int32_t>(end));
  return absl::OkStatus();
}

absl::Status SlotStates::Fill(const Batch& batch, HostBatch& out) {
  ++fills_;
  for (auto* list :
       {&out.positions, &out.slots, &out.row_begin, &out.context_lengths, &out.output_rows}) {
    list->clear();
  }
  out.kv_slots.clear();
  out.token_ids = batch.token_ids;
  out.row_begin.push_back(0);
  out.page_tables = page_tables_.data();
  out.page_table_stride = stride_;
  for (const BatchSequence& sequence : batch.sequences) {
    SKEIN_RETURN_IF_ERROR(AddRows(sequence, out));
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels
