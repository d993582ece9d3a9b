#include "base/tls/job_key.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/random_bytes.h"

namespace skein {
namespace {

using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

constexpr std::string_view kUse = "skein job key 1";  // the secret may have others
constexpr size_t kProofBytes = 64;

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Key PrivateKey(std::string_view secret) {
  std::array<unsigned char, kJobKeyBytes> seed{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), Bytes(kUse), kUse.size(),
           seed.data(), &size) == nullptr) {
    return {nullptr, EVP_PKEY_free};
  }
  return {EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, seed.data(), size),
          EVP_PKEY_free};
}

// No two claims have one text: all but the job's id, the last, are numbers or of one size.
std::string TextOf(const RankClaim& claim) {
  return absl::StrCat("skein attach 1\n", claim.rank, "\n", claim.job_size, "\n",
                      absl::string_view(claim.nonce.data(), claim.nonce.size()),
                      absl::string_view(claim.job_id.data(), claim.job_id.size()));
}

}  // namespace

std::string PublicJobKey(std::string_view secret) {
  const Key key = PrivateKey(secret);
  std::string out(kJobKeyBytes, '\0');
  size_t size = out.size();
  if (key == nullptr || EVP_PKEY_get_raw_public_key(
                            key.get(), reinterpret_cast<unsigned char*>(out.data()), &size) != 1) {
    return "";
  }
  return out;
}

std::string ProveClaim(std::string_view secret, const RankClaim& claim) {
  const Key key = PrivateKey(secret);
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const std::string text = TextOf(claim);
  std::string proof(kProofBytes, '\0');
  size_t size = proof.size();
  if (key == nullptr || claim.nonce.size() != kNonceBytes || context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(proof.data()), &size,
                     Bytes(text), text.size()) != 1) {
    return "";
  }
  return proof;
}

bool IsProof(std::string_view proof, std::string_view public_key, const RankClaim& claim) {
  if (proof.size() != kProofBytes || public_key.size() != kJobKeyBytes ||
      claim.nonce.size() != kNonceBytes) {
    return false;
  }
  const Key key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Bytes(public_key), public_key.size()),
      EVP_PKEY_free);
  const Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  const std::string text = TextOf(claim);
  return key != nullptr && context != nullptr &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), Bytes(proof), proof.size(), Bytes(text), text.size()) == 1;
}

absl::StatusOr<std::string> DrawNonce() { return RandomBytes(kNonceBytes); }

}  // namespace skein
