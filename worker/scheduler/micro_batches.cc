#include "worker/scheduler/micro_batches.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "parallel/plan/prompt_pieces.h"

namespace skein::worker {
namespace {

std::vector<std::vector<Chunk>> SpreadDecodes(std::vector<const SequenceView*> decodes,
                                              const SchedulerLimits& limits) {
  const auto before = [](const auto* a, const auto* b) { return a->id < b->id; };
  if (!absl::c_is_sorted(decodes, before)) absl::c_sort(decodes, before);  // they are, as a rule
  const int64_t count = decodes.size();
  const int64_t least =
      (count + limits.max_micro_batch_rows - 1) / limits.max_micro_batch_rows;  // for the rows
  const int64_t used = std::min(count, std::max<int64_t>(limits.micro_batches, least));
  std::vector<std::vector<Chunk>> batches(used);
  for (std::vector<Chunk>& batch : batches) batch.reserve(count / used + 1);
  for (int64_t i = 0; i < count; ++i) {
    batches[i * used / count].push_back({decodes[i]->id, decodes[i]->computed, 1, true});
  }
  return batches;
}

}  // namespace

std::vector<std::vector<Chunk>> CutRowsIntoMicroBatches(absl::Span<const RowShare> shares,
                                                        const SchedulerLimits& limits) {
  int64_t rows = 0;
  std::vector<const SequenceView*> decodes;
  decodes.reserve(shares.size());
  for (const RowShare& share : shares) {
    rows += share.rows;
    if (share.rows > 0 && Decodes(*share.sequence)) decodes.push_back(share.sequence);
  }
  std::vector<std::vector<Chunk>> batches = SpreadDecodes(std::move(decodes), limits);

  const int64_t pieces = plan::PromptPieces(limits.stages);
  const int64_t level = (rows + pieces - 1) / pieces;
  int64_t batch = -1;
  int64_t room = 0;
  for (const RowShare& share : shares) {
    const SequenceView& prompt = *share.sequence;
    if (Decodes(prompt)) continue;
    const int64_t end = prompt.computed + share.rows;
    for (int64_t begin = prompt.computed; begin < end;) {
      while (room == 0) {
        if (++batch == static_cast<int64_t>(batches.size())) batches.emplace_back();
        const int64_t decodes = batches[batch].size();
        room = std::min(std::max(level - decodes, plan::kMinPromptRows),
                        limits.max_micro_batch_rows - decodes);
      }
      const int64_t count = std::min(end - begin, room);
      batches[batch].push_back({prompt.id, begin, count, begin + count == prompt.length});
      begin += count;
      room -= count;
    }
  }
  return batches;
}

}  // namespace skein::worker
