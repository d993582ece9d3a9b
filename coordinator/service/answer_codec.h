// Requests and events as bytes, for the journal of answers: CBOR, in forms that are this
// coordinator's own.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/service/request.h"
#include "coordinator/service/validation.h"

namespace skein::coordinator {

// Raise it when a form below changes: answers of another one are not gone on with.
inline constexpr int kAnswerCodecVersion = 1;

// An event of one of an answer's requests.
struct PartEvent {
  int32_t part = 0;
  Event event;
};

std::string EncodeEvent(int32_t part, const Event& event);
// DataLoss: these are no bytes of EncodeEvent.
absl::StatusOr<PartEvent> DecodeEvent(const std::string& bytes);

// Of a request that was checked: its id, and how long it waited, are not kept.
std::string EncodeRequest(const ValidRequest& request);
absl::StatusOr<ValidRequest> DecodeRequest(const std::string& bytes);

}  // namespace skein::coordinator
