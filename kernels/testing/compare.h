// Holds results of back ends against each other.
#pragma once

#include <cstdint>
#include <span>

#include "gtest/gtest.h"

namespace skein::kernels {

// Passes when |actual[i] - expected[i]| <= roundings * 2^-24 * magnitude[i] for every i: magnitude
// is the sum of the absolute values of what was added up, roundings how often a float was rounded
// on the way (the number of terms, for a sum). An infinity equals itself only, NaN only NaN; a NaN
// or negative tolerance fails. The failure counts the mismatches and names the first and the worst.
testing::AssertionResult Close(std::span<const float> actual, std::span<const float> expected,
                               std::span<const float> magnitude, double roundings);

// Passes when all are the same bits; the failure counts and names the first difference.
testing::AssertionResult SameBits(std::span<const float> actual, std::span<const float> expected);

}  // namespace skein::kernels
