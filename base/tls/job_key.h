// How a rank proves that it is of its job, though the job's secret never leaves the ranks and
// whoever started them: a key pair follows from the secret (Ed25519), others know its public half,
// and the rank signs what they have drawn at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace skein {

inline constexpr size_t kJobKeyBytes = 32;
inline constexpr size_t kNonceBytes = 32;

// What a rank claims to be, to whoever has drawn `nonce`, which is never drawn again.
struct RankClaim {
  std::string_view nonce;
  std::string_view job_id;
  int32_t rank = 0;
  int32_t job_size = 0;
};

// Of the job whose ranks share `secret`: kJobKeyBytes. It tells nothing of a secret that was drawn
// at random. Empty where OpenSSL cannot make one; nobody takes that for a key.
std::string PublicJobKey(std::string_view secret);

// Empty, which proves nothing, where OpenSSL cannot sign.
std::string ProveClaim(std::string_view secret, const RankClaim& claim);
bool IsProof(std::string_view proof, std::string_view public_key, const RankClaim& claim);

// kNonceBytes that nobody can foresee.
absl::StatusOr<std::string> DrawNonce();

}  // namespace skein
