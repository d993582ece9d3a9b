#include "kernels/ops/batch_digest.h"

namespace skein::kernels {
namespace {

// FNV-1a over words instead of bytes, folded at the end.
class Digest {
 public:
  void Add(int64_t value) { state_ = (state_ ^ static_cast<uint64_t>(value)) * 0x100000001b3; }
  template <typename List>
  void AddList(const List& list) {
    Add(static_cast<int64_t>(list.size()));
    for (const auto& value : list) Add(value);
  }
  uint32_t Fold() const { return static_cast<uint32_t>(state_ ^ (state_ >> 32)); }

 private:
  uint64_t state_ = 0xcbf29ce484222325;
};

}  // namespace

uint32_t DigestOf(const Batch& batch) {
  Digest digest;
  digest.Add(static_cast<int64_t>(batch.starts.size()));
  for (const SlotStart& start : batch.starts) {
    digest.Add(start.slot);
    digest.Add(start.prompt_of);
    digest.Add(static_cast<int64_t>(start.prompt.size()));
  }
  digest.Add(static_cast<int64_t>(batch.copies.size()));
  for (const PageCopy& copy : batch.copies) {
    digest.Add(static_cast<int64_t>(copy.kind));
    digest.Add(copy.from);
    digest.Add(copy.to);
  }
  digest.Add(static_cast<int64_t>(batch.updates.size()));
  for (const SlotUpdate& update : batch.updates) {
    digest.Add(update.slot);
    digest.Add(update.length.value_or(-1));
    digest.Add(update.first_page);
    digest.AddList(update.pages);
  }
  digest.Add(static_cast<int64_t>(batch.sequences.size()));
  for (const BatchSequence& sequence : batch.sequences) {
    digest.Add(sequence.slot);
    digest.Add(sequence.rows);
    digest.Add(sequence.outputs);
    digest.Add(sequence.draws);
    digest.Add(sequence.guesses);
    digest.Add(sequence.pooled);
  }
  digest.AddList(batch.token_ids);
  return digest.Fold();
}

}  // namespace skein::kernels
