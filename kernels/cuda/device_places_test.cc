#include "kernels/cuda/device_places.h"

#include <cstdint>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/batch_upload.h"
#include "kernels/cuda/kv_layout.h"

namespace skein::kernels::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GraphRowsTest, GoUpToWhatABatchCanHave) {
  EXPECT_THAT(GraphRows({.rows = 256, .outputs = 20, .slots = 20}),
              ElementsAre(1, 2, 4, 8, 16, 20));
  EXPECT_THAT(GraphRows({.rows = 5, .outputs = 100, .slots = 100}), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(GraphRows({.rows = 9, .outputs = 9, .slots = 1}), ElementsAre(1));
  EXPECT_THAT(GraphRows({.rows = 9, .outputs = 0, .slots = 9}), IsEmpty());
  const std::vector<int32_t> many = GraphRows({.rows = 4096, .outputs = 4096, .slots = 4096});
  EXPECT_EQ(many.back(), 512);
  for (size_t i = 5; i < many.size(); ++i) EXPECT_LE(many[i], many[i - 1] * 3 / 2);
}

TEST(PageBytesTest, AreTheLayouts) {
  for (const KvDType dtype : {KvDType::kBF16, KvDType::kInt8}) {
    for (const int32_t head_dim : {64, 96, 128}) {
      for (const int32_t page_size : {16, 64}) {
        const KvLayer layer = {nullptr, 3, head_dim, page_size, dtype == KvDType::kInt8};
        EXPECT_EQ(
            PageBytes(
                {.kv_heads = 3, .head_dim = head_dim, .page_size = page_size, .dtype = dtype}),
            layer.PageBytes());
      }
    }
  }
}

// Worked out by hand, of the 8B with 256 sequences.
TEST(PinnedByTest, LogitsAndBatchesOfManySequencesWeighMost) {
  Program program;
  program.buffers = {{.cols = 4096}, {.cols = 128256}};
  Limits limits = {.rows = 2048, .outputs = 272, .slots = 256, .slot_pages = 512};
  const int64_t upload = 2048 * (8 + 4 + 4) + 256 * (8 + 512 * 8 + 3 * 4) + 4 + 272 * (8 + 108 + 4);
  EXPECT_EQ(PinnedBy(program, limits).sum(), 2 * upload);
  program.logits = 1;
  program.vocab_size = 128256;
  const PinnedSizes sizes = PinnedBy(program, limits);
  EXPECT_EQ(sizes.logits, int64_t{272} * 128256 * 4);
  EXPECT_EQ(sizes.drawn, 2 * 256 * 8);
  EXPECT_EQ(sizes.made, 2 * 272 * (16 + 16 + 20 * 8));
  EXPECT_EQ(sizes.masks, 2 * 272 * 4008 * 4);
  EXPECT_EQ(sizes.put_down, 2 * 512 * 1024);
  EXPECT_EQ(sizes.sum(),
            2 * upload + sizes.drawn + sizes.made + sizes.masks + sizes.put_down + sizes.logits);
  program.buffers[0].dtype = DType::kBF16;
  program.pooled.in = 0;
  EXPECT_EQ(PinnedBy(program, limits).pooled, 2 * 2048 * 4096 * 2);
  EXPECT_EQ(PinnedBy(program, limits).sum(), sizes.sum() + 2 * 2048 * 4096 * 2);
}

TEST(CheckLimitsTest, RefusesWhatCannotBeNumbered) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  SKEIN_EXPECT_OK(CheckLimits({.slots = 8191, .slot_pages = 262000}));
  EXPECT_THAT(
      CheckLimits({.slots = 8192, .slot_pages = 1}),
      StatusIs(kInvalid, HasSubstr("8192 sequences of 1 pages each: GPUs have at most 8191")));
  SKEIN_EXPECT_OK(CheckLimits({.slots = 4, .slot_pages = (int64_t{1} << 29) - 1}));
  EXPECT_THAT(CheckLimits({.slots = 4, .slot_pages = int64_t{1} << 29}),
              StatusIs(kInvalid, HasSubstr("2147483647 pages for all")));
  // What they take is counted all the same.
  EXPECT_GT(BatchUpload::MaxBytes({.slots = 4096, .slot_pages = 1 << 20}), int64_t{8} << 32);
}

TEST(PlaceOnDeviceTest, HasRoomForWhatDrawsDependOn) {
  const Limits limits = {.rows = 8, .outputs = 8, .slots = 3, .slot_pages = 10};
  Program program;
  const int64_t without = PlaceOnDevice(program, limits, 16, 132).bytes;
  program.buffers.push_back({.rows = BufferSpec::Rows::kOutputs, .cols = 32});
  program.logits = 0;
  program.vocab_size = 32;
  const DevicePlaces places = PlaceOnDevice(program, limits, 16, 132);
  // A token more than there are positions.
  EXPECT_EQ(places.history_stride, 161);
  EXPECT_GE(places.lists - places.histories, 3 * 161 * 4);
  EXPECT_GE(places.breakers - places.lists, 3 * kSlotEntries * 8);
  EXPECT_GE(places.mus - places.breakers, 3 * 4);
  EXPECT_GE(places.bytes - without, 3 * (161 * 4 + kSlotEntries * 8 + 4 + 4));
  // Shards exchange rows of the whole vocabulary, of multiples of 16 bytes.
  program.vocab_size = 33;
  program.vocab_shards = 2;
  const DevicePlaces shard = PlaceOnDevice(program, limits, 16, 132);
  EXPECT_EQ(shard.gathered_stride, 36);
  EXPECT_EQ(DrawFloats(program, limits), kSampledAtOnce * 36);
  EXPECT_EQ(DrawFloats(program, {.outputs = 800}), 2 * 2 * 800);
  EXPECT_GE(shard.bytes - places.bytes, kSampledAtOnce * 36 * 4 + 2 * 2 * 3 * 4);
}

}  // namespace
}  // namespace skein::kernels::cuda
