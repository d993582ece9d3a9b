#include "base/tls/job_key.h"

#include <string>

#include "absl/strings/escaping.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein {
namespace {

using ::testing::Not;
using ::testing::SizeIs;

const char kSecret[] = "a secret of the job";

std::string CountedNonce() {
  std::string nonce;
  for (char byte = 0; byte < 32; ++byte) nonce += byte;
  return nonce;
}

// Made by Python's hmac and the openssl program: workers and coordinators of other versions make
// the same.
TEST(JobKeyTest, KeyAndProofAreAsTheyEverWere) {
  const std::string nonce = CountedNonce();
  const RankClaim claim = {.nonce = nonce, .job_id = "5f0c", .rank = 3, .job_size = 4};
  EXPECT_EQ(absl::BytesToHexString(PublicJobKey(kSecret)),
            "751fb6c8a84e8ee19515e44c455a123adcba6af417beecc3cc6e8b54657453e0");
  EXPECT_EQ(absl::BytesToHexString(ProveClaim(kSecret, claim)),
            "c34bca484a607aa8719d71ee50b70832bc652d7d0ff78dcc540ef06ab86446de"
            "e2ff499ab88f18d8f1c48cea1efe5da9bda804a769223c4b25062981e11ebf00");
}

TEST(JobKeyTest, AProofIsOfOneClaimAndOneSecretAlone) {
  const std::string nonce = CountedNonce();
  const std::string key = PublicJobKey(kSecret);
  const RankClaim claim = {.nonce = nonce, .job_id = "job", .rank = 1, .job_size = 12};
  const std::string proof = ProveClaim(kSecret, claim);
  EXPECT_TRUE(IsProof(proof, key, claim));

  std::string other_nonce = nonce;
  other_nonce[31] ^= 1;
  for (const RankClaim& other : {RankClaim{other_nonce, "job", 1, 12},
                                 {nonce, "jobs", 1, 12},
                                 {nonce, "", 1, 12},
                                 {nonce, "job", 0, 12},
                                 {nonce, "job", 11, 2},
                                 {nonce, "job", 1, 13}}) {
    EXPECT_FALSE(IsProof(proof, key, other)) << other.rank << " " << other.job_id;
  }
  EXPECT_FALSE(IsProof(proof, PublicJobKey("another secret of it"), claim));
  EXPECT_FALSE(IsProof(ProveClaim("another secret of it", claim), key, claim));
  for (size_t at : {0, 31, 32, 63}) {
    std::string changed = proof;
    changed[at] ^= 1;
    EXPECT_FALSE(IsProof(changed, key, claim)) << at;
  }
}

TEST(JobKeyTest, WhatHasNotItsSizeProvesNothing) {
  const std::string nonce = CountedNonce();
  const RankClaim claim = {.nonce = nonce, .job_id = "job", .rank = 1, .job_size = 2};
  const std::string key = PublicJobKey(kSecret);
  const std::string proof = ProveClaim(kSecret, claim);
  EXPECT_FALSE(IsProof("", key, claim));
  EXPECT_FALSE(IsProof(proof + "x", key, claim));
  EXPECT_FALSE(IsProof(proof, "", claim));
  EXPECT_FALSE(IsProof(proof, key.substr(1), claim));
  // Else a rank could be made to sign what says something else.
  for (const std::string& bad : {std::string(), nonce.substr(1), nonce + "j"}) {
    const RankClaim senseless = {.nonce = bad, .job_id = "ob", .rank = 1, .job_size = 2};
    EXPECT_EQ(ProveClaim(kSecret, senseless), "");
    EXPECT_FALSE(IsProof(proof, key, senseless));
  }
}

TEST(JobKeyTest, NoncesDiffer) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string first, DrawNonce());
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string second, DrawNonce());
  EXPECT_THAT(first, SizeIs(kNonceBytes));
  EXPECT_THAT(first, Not(second));
}

}  // namespace
}  // namespace skein
