#include "kernels/cuda/slot_parameters.h"

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/sampling/sampling.h"

namespace skein::kernels::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<std::pair<int32_t, int32_t>> ListOf(const SlotParameters& parameters) {
  std::vector<std::pair<int32_t, int32_t>> list;
  for (const SetPair& pair : parameters.list) list.emplace_back(pair.index, pair.value);
  return list;
}

TEST(SlotParametersTest, BiasesAscendAndKeepTheirOrderByToken) {
  const SlotParameters parameters =
      SlotParametersOf({.logit_bias = {{7, 1}, {3, 2}, {7, -4}, {0, 0.5f}}, .stop_ids = {9}}, 10);
  const auto bits = [](float bias) { return std::bit_cast<int32_t>(bias); };
  EXPECT_THAT(ListOf(parameters), ElementsAre(Pair(0, bits(0.5f)), Pair(3, bits(2)),
                                              Pair(7, bits(1)), Pair(7, bits(-4))));
  EXPECT_EQ(parameters.draw.biases, 4);
  EXPECT_EQ(parameters.draw.stops, 0);  // there is no least length
  EXPECT_FALSE(parameters.draw.remembers());
}

TEST(SlotParametersTest, StopsAreLeftOutWhileTheOutputIsShort) {
  const serving::SamplingParams params = {
      .seed = 4, .answer = 2, .logit_bias = {{1, 1}}, .min_tokens = 3, .stop_ids = {9, 8}};
  const SlotParameters parameters = SlotParametersOf(params, 10);
  EXPECT_THAT(ListOf(parameters), ElementsAre(Pair(1, testing::_), Pair(9, 0), Pair(8, 0)));
  for (const uint64_t output : {0, 2, 3, 4}) {
    const SampledDraw draw = DrawBehind(parameters.draw, params, 5, output);
    EXPECT_EQ(draw.stops, output < 3 ? 2 : 0) << output;
    EXPECT_EQ(draw.uniform, UniformDraw(4, output, 2));
    EXPECT_EQ(draw.prompt, 5);
    EXPECT_EQ(draw.output, static_cast<int32_t>(output));
  }
}

TEST(SlotParametersTest, BreakersAreBitsAndSequencesByTheirLastToken) {
  const SlotParameters parameters =
      SlotParametersOf({.min_tokens = 1,
                        .stop_ids = {6},
                        .dry_multiplier = 1,
                        .dry_breakers = {{5}, {1, 2, 3}, {}, {9, 3}, {33}, {7, 1}, {-1}, {40}}},
                       40);
  EXPECT_THAT(parameters.breakers, ElementsAre(1u << 5, 1u << 1));
  EXPECT_EQ(parameters.draw.breakers_begin, 1);
  EXPECT_EQ(parameters.draw.breakers, 3);
  EXPECT_THAT(ListOf(parameters), ElementsAre(Pair(6, 0),                          // stops
                                              Pair(1, 6), Pair(3, 3), Pair(3, 5),  // heads
                                              Pair(2, 1), Pair(1, 0),              // 1, 2, 3
                                              Pair(9, 0),                          // 9, 3
                                              Pair(7, 0)));                        // 7, 1
  EXPECT_TRUE(parameters.draw.breaks);
  EXPECT_TRUE(parameters.draw.remembers());
  // Without DRY nobody needs them.
  const SlotParameters without = SlotParametersOf({.dry_breakers = {{5}, {1, 2}}}, 40);
  EXPECT_THAT(without.breakers, IsEmpty());
  EXPECT_THAT(without.list, IsEmpty());
  EXPECT_FALSE(without.draw.remembers());
}

}  // namespace
}  // namespace skein::kernels::cuda
