// TLS 1.3 between two ends that share a random key and nothing else: no certificates, no files.
// Each end shows that it has the key; what they say is encrypted by keys of this one conversation
// (X25519), which nobody learns from the shared one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein {

inline constexpr size_t kSharedKeyBytes = 32;

// One end. It knows bytes, no sockets: whoever has it carries what it gives to the other end, and
// what comes from there to it. Not thread-safe. After an error it is of no use any more, but for
// what it still has to tell the other end.
class SharedKeyTls {
 public:
  // Internal where OpenSSL cannot. `identity`, at most 128 bytes without zeros, is what the client
  // says it is; who listens on the way can read that.
  static absl::StatusOr<std::unique_ptr<SharedKeyTls>> Client(std::string_view key,
                                                              std::string_view identity);
  static absl::StatusOr<std::unique_ptr<SharedKeyTls>> Server(std::string_view key);
  virtual ~SharedKeyTls() = default;

  // What the other end has sent.
  virtual void Feed(std::string_view bytes) = 0;
  // What is to be sent to it; empties itself.
  virtual std::string TakeOutgoing() = 0;

  // Goes on with the handshake as far as what was fed allows; true once it is over.
  // PermissionDenied: the other end has not the key, or speaks something else.
  virtual absl::StatusOr<bool> Handshake() = 0;
  // Of a server: whom the client said it is, once the handshake is over.
  virtual const std::string& identity() const = 0;

  // After the handshake: makes `text` into bytes to be sent.
  virtual absl::Status Seal(std::string_view text) = 0;
  // Appends to `text` all that has come whole. DataLoss: it was changed on the way.
  virtual absl::Status Open(std::string& text) = 0;
};

}  // namespace skein
