#include "kernels/testing/compare.h"

#include <bit>
#include <cmath>
#include <cstddef>

namespace skein::kernels {
namespace {

bool Within(float actual, float expected, double tolerance) {
  if (std::isnan(expected) || std::isnan(actual)) return std::isnan(expected) && std::isnan(actual);
  if (std::isinf(expected) || std::isinf(actual)) return expected == actual;
  return std::abs(double{actual} - double{expected}) <= tolerance;
}

}  // namespace

testing::AssertionResult Close(std::span<const float> actual, std::span<const float> expected,
                               std::span<const float> magnitude, double roundings) {
  if (actual.size() != expected.size() || actual.size() != magnitude.size()) {
    return testing::AssertionFailure() << actual.size() << " values, " << expected.size()
                                       << " expected, " << magnitude.size() << " magnitudes";
  }
  size_t mismatches = 0;
  size_t first = 0;
  size_t worst = 0;
  double worst_excess = -1;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double tolerance = roundings * 0x1p-24 * magnitude[i];
    if (tolerance >= 0 && Within(actual[i], expected[i], tolerance)) continue;
    if (mismatches++ == 0) first = worst = i;
    const double excess = std::abs(double{actual[i]} - double{expected[i]}) - tolerance;
    if (excess > worst_excess) {
      worst_excess = excess;
      worst = i;
    }
  }
  if (mismatches == 0) return testing::AssertionSuccess();
  const auto describe = [&](testing::AssertionResult& result, const char* which, size_t i) {
    result << "; " << which << " [" << i << "] " << actual[i] << ", expected " << expected[i]
           << " within " << roundings * 0x1p-24 * magnitude[i];
  };
  auto result = testing::AssertionFailure()
                << mismatches << " of " << actual.size() << " values differ";
  describe(result, "first", first);
  describe(result, "worst", worst);
  return result;
}

testing::AssertionResult SameBits(std::span<const float> actual, std::span<const float> expected) {
  if (actual.size() != expected.size()) {
    return testing::AssertionFailure()
           << actual.size() << " values, " << expected.size() << " expected";
  }
  size_t mismatches = 0;
  size_t first = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::bit_cast<uint32_t>(actual[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    if (mismatches++ == 0) first = i;
  }
  if (mismatches == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << mismatches << " of " << actual.size() << " values have other bits; first [" << first
         << "] " << actual[first] << ", expected " << expected[first];
}

}  // namespace skein::kernels
