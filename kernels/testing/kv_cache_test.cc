// A copy of a KV page gives attention the bits of the original, in the same cache and by way of
// another one.
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"
#include "kernels/testing/compare.h"
#include "kernels/testing/harness.h"

namespace skein::kernels {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kHeads = 4, kKvHeads = 2, kHeadDim = 18, kLayers = 2;
constexpr int64_t kPageSize = 5;

// Two layers write and attend.
class KvCacheTest : public testing::TestWithParam<std::tuple<BackendCase, KvDTypeCase>> {
 protected:
  KvCacheTest() {
    const WeightId frequencies = p_.AddVector(RandomFloats(1, kHeadDim / 2));
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      qkv_[layer] = p_.AddBuffer((kHeads + 2 * kKvHeads) * kHeadDim);
      out_[layer] = p_.AddBuffer(kHeads * kHeadDim);
      p_.Add(RopeAppendKvOp{qkv_[layer], kHeads, kKvHeads, kHeadDim, frequencies, layer});
      p_.Add(AttentionOp{qkv_[layer], kHeads, kKvHeads, kHeadDim, 0.3f, layer, out_[layer]});
    }
    p_.kv_spec = Spec(20);
    p_.Bind(*backend_);
  }

  static KvSpec Spec(int64_t pages) {
    return {.layers = kLayers,
            .kv_heads = kKvHeads,
            .head_dim = kHeadDim,
            .page_size = kPageSize,
            .pages = pages,
            .dtype = std::get<1>(GetParam()).dtype};
  }

  // Writes and attends at positions [first, first + count) of the sequence that lives on `pages`;
  // what is written depends on the seed.
  std::vector<float> Run(const std::vector<int32_t>& pages, int32_t first, int32_t count,
                         uint32_t seed) {
    for (BufferId qkv : qkv_) {
      p_.Set(qkv, RandomFloats(seed++, count * p_.program.buffers[qkv].cols, 2));
    }
    const Chunk chunk{pages, first, std::vector<int32_t>(count, 0)};
    SKEIN_EXPECT_OK(p_.Run(BatchOf({chunk})));
    std::vector<float> result = p_.Get(out_[0], count);
    const std::vector<float> second = p_.Get(out_[1], count);
    result.insert(result.end(), second.begin(), second.end());
    return result;
  }

  const std::unique_ptr<Backend> backend_ = std::get<0>(GetParam()).make();
  TestProgram p_;
  BufferId qkv_[kLayers];
  BufferId out_[kLayers];
};

TEST_P(KvCacheTest, ACopiedPageReadsTheSameAndIsItsOwn) {
  Run({7, 2, 11}, 0, 13, 10);
  const auto expected = Run({7, 2, 11}, 13, 1, 20);
  // Another answer to the prompt shares the full pages and writes on a copy of the last one.
  SKEIN_ASSERT_OK(p_.kv->CopyPage(*p_.kv, 11, 0));
  EXPECT_TRUE(SameBits(Run({7, 2, 0}, 13, 1, 20), expected));
  const auto other = Run({7, 2, 0}, 13, 2, 30);
  EXPECT_FALSE(SameBits({other.data(), expected.size()}, expected));
  EXPECT_TRUE(SameBits(Run({7, 2, 11}, 13, 1, 20), expected));
  SKEIN_ASSERT_OK(p_.kv->CopyPage(*p_.kv, 11, 11));
  EXPECT_TRUE(SameBits(Run({7, 2, 11}, 13, 1, 20), expected));
}

TEST_P(KvCacheTest, PagesComeBackFromAnotherCache) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::unique_ptr<KvCache> swap, backend_->AllocateKv(Spec(3)));
  Run({7, 2, 11}, 0, 13, 10);
  const auto expected = Run({7, 2, 11}, 13, 1, 20);
  for (auto [page, swapped] : {std::pair{7, 2}, {2, 0}, {11, 1}}) {
    SKEIN_ASSERT_OK(swap->CopyPage(*p_.kv, page, swapped));
  }
  Run({2, 11, 7}, 0, 15, 40);  // another sequence takes the pages
  for (auto [swapped, page] : {std::pair{2, 19}, {0, 7}, {1, 3}}) {
    SKEIN_ASSERT_OK(p_.kv->CopyPage(*swap, swapped, page));
  }
  EXPECT_TRUE(SameBits(Run({19, 7, 3}, 13, 1, 20), expected));
}

TEST_P(KvCacheTest, ImpossibleCopiesAreErrors) {
  const auto refuses = [&](const KvCache& from, int32_t from_page, int32_t to_page,
                           const char* words) {
    EXPECT_THAT(p_.kv->CopyPage(from, from_page, to_page),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)));
  };
  refuses(*p_.kv, 20, 0, "from_page: no page 20 of 20");
  refuses(*p_.kv, -1, 0, "from_page: no page -1");
  refuses(*p_.kv, 0, 20, "to_page: no page 20 of 20");
  refuses(*p_.kv, 0, -1, "to_page: no page -1");
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto small, backend_->AllocateKv(Spec(3)));
  refuses(*small, 3, 0, "from_page: no page 3 of 3");

  std::vector<KvSpec> others(5, Spec(20));
  ++others[0].layers;
  ++others[1].kv_heads;
  ++others[2].head_dim;
  ++others[3].page_size;
  others[4].dtype = others[4].dtype == KvDType::kF32 ? KvDType::kInt8 : KvDType::kF32;
  for (const KvSpec& spec : others) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto other, backend_->AllocateKv(spec));
    refuses(*other, 0, 0, "different shapes or dtypes");
  }

  SKEIN_ASSERT_OK_AND_ASSIGN(const auto cpu, MakeCpuBackend({}));
  const auto reference = MakeReferenceBackend();
  Backend& stranger = backend_->name() == "cpu" ? *reference : *cpu;
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto strange, stranger.AllocateKv(Spec(20)));
  refuses(*strange, 0, 0, "another back end");
}

INSTANTIATE_TEST_SUITE_P(Backends, KvCacheTest,
                         testing::Combine(testing::ValuesIn(AllBackends()),
                                          testing::ValuesIn(KvDTypes())),
                         [](const auto& info) {
                           return std::get<0>(info.param).name + std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace skein::kernels
