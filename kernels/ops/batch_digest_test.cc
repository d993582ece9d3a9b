// Which batches a digest tells apart.
#include "kernels/ops/batch_digest.h"

#include <functional>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace skein::kernels {
namespace {

Batch Sample() {
  Batch batch = {.step = 4};
  batch.starts = {{.slot = 1, .prompt = {5, 6}}};
  batch.copies = {{.kind = PageCopy::Kind::kSwapIn, .from = 2, .to = 3}};
  batch.updates = {{.slot = 1, .first_page = 0, .pages = {7, 8}}};
  batch.sequences = {{.slot = 1, .rows = 2, .outputs = 1, .draws = true}, {.slot = 0, .rows = 1}};
  batch.token_ids = {5, 6, -1};
  return batch;
}

TEST(DigestOf, ChangesWithEachPart) {
  const std::vector<std::function<void(Batch&)>> changes = {
      [](Batch&) {},
      [](Batch& b) { b.starts[0].slot = 2; },
      [](Batch& b) { b.starts[0].prompt_of = 0; },
      [](Batch& b) { b.starts[0].prompt.push_back(7); },
      [](Batch& b) { b.starts.clear(); },
      [](Batch& b) { b.copies[0].kind = PageCopy::Kind::kSwapOut; },
      [](Batch& b) { b.copies[0].from = 3; },
      [](Batch& b) { b.copies[0].to = 2; },
      [](Batch& b) { b.copies.clear(); },
      [](Batch& b) { b.updates[0].slot = 0; },
      [](Batch& b) { b.updates[0].length = 0; },
      [](Batch& b) { b.updates[0].first_page = 1; },
      [](Batch& b) { b.updates[0].pages = {8, 7}; },
      [](Batch& b) { b.updates.clear(); },
      [](Batch& b) { b.sequences[0].slot = 3; },
      [](Batch& b) { b.sequences[0].rows = 1, b.sequences[1].rows = 2; },
      [](Batch& b) { b.sequences[0].outputs = 2; },
      [](Batch& b) { b.sequences[0].draws = false; },
      [](Batch& b) { b.sequences[1].guesses = 1; },
      [](Batch& b) { b.sequences[0].pooled = 1; },
      [](Batch& b) { b.sequences.pop_back(); },
      [](Batch& b) { b.token_ids[1] = 5; },
      [](Batch& b) { b.token_ids = {6, 5, -1}; },
      [](Batch& b) { b.token_ids.pop_back(); },
  };
  std::set<uint32_t> digests;
  for (const auto& change : changes) {
    Batch batch = Sample();
    change(batch);
    digests.insert(DigestOf(batch));
  }
  EXPECT_EQ(digests.size(), changes.size());
  // The step goes beside it.
  Batch later = Sample();
  later.step = 5;
  EXPECT_EQ(DigestOf(later), DigestOf(Sample()));
}

}  // namespace
}  // namespace skein::kernels
