#include "worker/engine/input_batches.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::worker {

absl::StatusOr<InputBatches::Pages*> InputBatches::Find(SequenceId id) {
  const auto found = pages_.find(id);
  if (found == pages_.end()) {
    return absl::InternalError(
        absl::StrCat("a step works on sequence ", id, ", which was never started"));
  }
  return &found->second;
}

absl::Status InputBatches::Copy(const std::vector<PageCopy>& copies) {
  for (const PageCopy& copy : copies) {
    const bool out = copy.kind == PageCopy::Kind::kSwapOut;
    const bool in = copy.kind == PageCopy::Kind::kSwapIn;
    kernels::KvCache* const from = in ? options_.swap : options_.kv;
    kernels::KvCache* const to = out ? options_.swap : options_.kv;
    if (from == nullptr || to == nullptr) {
      return absl::InternalError("a step copies pages that this rank does not have");
    }
    SKEIN_RETURN_IF_ERROR(to->CopyPage(*from, copy.from, copy.to));
  }
  return absl::OkStatus();
}

absl::Status InputBatches::Update(const StepOrder& order) {
  for (SequenceId id : order.ended) pages_.erase(id);
  for (const SequenceStart& start : order.started) pages_[start.id];
  SKEIN_RETURN_IF_ERROR(Copy(order.copies));
  for (const PageTableUpdate& update : order.tables) {
    SKEIN_ASSIGN_OR_RETURN(Pages* const pages, Find(update.id));
    if (update.first < 0 || update.first > static_cast<int64_t>(pages->size())) {
      return absl::InternalError(absl::StrCat("a step leaves a hole before page ", update.first,
                                              " of sequence ", update.id));
    }
    pages->resize(update.first);
    pages->insert(pages->end(), update.pages.begin(), update.pages.end());
  }
  return absl::OkStatus();
}

absl::Status InputBatches::AddRows(const ChunkOrder& chunk, const Pages& pages,
                                   NewestToken newest) {
  const int64_t page_size = options_.page_size;
  const int64_t end = chunk.end();
  if (chunk.tokens.empty() || chunk.begin < 0 ||
      end > static_cast<int64_t>(pages.size()) * page_size) {
    return absl::InternalError(absl::StrCat("a step works on positions ", chunk.begin, " to ", end,
                                            " of sequence ", chunk.id, ", which has ", pages.size(),
                                            " pages of ", page_size));
  }
  row_begin_.push_back(static_cast<int32_t>(positions_.size()));
  for (int64_t position = chunk.begin; position < end; ++position) {
    positions_.push_back(static_cast<int32_t>(position));
    kv_slots_.push_back(pages[position / page_size] * page_size + position % page_size);
  }
  if (options_.embeds) {
    for (int32_t token : chunk.tokens) {
      if (token == kSampledToken) {
        SKEIN_ASSIGN_OR_RETURN(token, newest(chunk.id));
      }
      token_ids_.push_back(token);
    }
  }
  context_lengths_.push_back(static_cast<int32_t>(end));
  if (options_.has_logits) {
    const auto rows = static_cast<int64_t>(positions_.size());
    for (int64_t row = rows - chunk.outputs(); row < rows; ++row) {
      output_rows_.push_back(static_cast<int32_t>(row));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<kernels::Batch> InputBatches::Fill(const std::vector<ChunkOrder>& chunks,
                                                  NewestToken newest) {
  for (auto* list :
       {&token_ids_, &positions_, &row_begin_, &context_lengths_, &page_table_, &output_rows_}) {
    list->clear();
  }
  kv_slots_.clear();
  std::vector<const Pages*> tables;
  int64_t stride = 0;
  for (const ChunkOrder& chunk : chunks) {
    SKEIN_ASSIGN_OR_RETURN(const Pages* const pages, Find(chunk.id));
    SKEIN_RETURN_IF_ERROR(AddRows(chunk, *pages, newest));
    tables.push_back(pages);
    stride = std::max(stride, (chunk.end() + options_.page_size - 1) / options_.page_size);
  }
  row_begin_.push_back(static_cast<int32_t>(positions_.size()));
  page_table_.resize(tables.size() * stride, 0);
  for (size_t i = 0; i < tables.size(); ++i) {
    std::copy_n(tables[i]->begin(),
                std::min<int64_t>(stride, static_cast<int64_t>(tables[i]->size())),
                page_table_.begin() + i * stride);
  }
  return kernels::Batch{.token_ids = token_ids_,
                        .positions = positions_,
                        .kv_slots = kv_slots_,
                        .row_begin = row_begin_,
                        .context_lengths = context_lengths_,
                        .page_table = page_table_,
                        .page_table_stride = stride,
                        .output_rows = output_rows_};
}

}  // namespace skein::worker
