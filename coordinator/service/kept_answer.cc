#include "coordinator/service/kept_answer.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/service/inference_service.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// ---- The head ----

std::string EncodeHead(const KeptHead& head) {
  using nlohmann::json;
  json requests = json::array();
  for (const std::string& request : head.requests) {
    requests.push_back(json::binary(std::vector<uint8_t>(request.begin(), request.end())));
  }
  std::string bytes;
  json::to_cbor({{"version", kAnswerCodecVersion},
                 {"id", head.id},
                 {"route", head.route},
                 {"body", head.body},
                 {"key", head.key},
                 {"model", head.model},
                 {"identity", head.identity},
                 {"arrived", absl::ToUnixNanos(head.arrived)},
                 {"requests", std::move(requests)}},
                bytes);
  return bytes;
}

absl::StatusOr<KeptHead> DecodeHead(const std::string& bytes) {
  try {
    const nlohmann::json in = nlohmann::json::from_cbor(bytes);
    const int version = in.at("version").get<int>();
    if (version != kAnswerCodecVersion) {
      return absl::FailedPreconditionError(absl::StrCat("it is of version ", version,
                                                        " of the form of answers; this one is ",
                                                        kAnswerCodecVersion));
    }
    KeptHead head = {.id = in.at("id").get<std::string>(),
                     .route = in.at("route").get<std::string>(),
                     .body = in.at("body").get<std::string>(),
                     .key = in.at("key").get<std::string>(),
                     .model = in.at("model").get<std::string>(),
                     .identity = in.at("identity").get<std::string>(),
                     .arrived = absl::FromUnixNanos(in.at("arrived").get<int64_t>()),
                     .requests = {}};
    for (const nlohmann::json& request : in.at("requests")) {
      const auto& binary = request.get_binary();
      head.requests.emplace_back(binary.begin(), binary.end());
    }
    return head;
  } catch (const std::exception& thrown) {
    return absl::DataLossError(absl::StrCat("its head cannot be read: ", thrown.what()));
  }
}

// ---- To begin ----

KeptAnswer::KeptAnswer(Context context, int64_t number, KeptHead head, InferenceService* service,
                       std::shared_ptr<const ServedModel> model)
    : context_(std::move(context)),
      number_(number),
      head_(std::move(head)),
      service_(service),
      model_(std::move(model)),
      unaccepted_(head_.requests.size()),
      since_(context_.clock->Now()) {}

KeptAnswer::~KeptAnswer() {
  MutexLock lock(&mutex_);
  context_.shared->total_bytes -= bytes_;
}

Generation::OnReady KeptAnswer::OnReady() {
  return [weak = weak_from_this()](Generation::Ready ready) {
    if (ready == Generation::Ready::kMore) return;
    if (const auto answer = weak.lock()) answer->Collect();
  };
}

void KeptAnswer::Add(std::shared_ptr<Generation> generation) {
  generations_.push_back(std::move(generation));
}

absl::Status KeptAnswer::Restore(const std::vector<std::string>& records) {
  MutexLock lock(&mutex_);
  int64_t bytes = 0;
  for (const std::string& record : records) {
    SKEIN_ASSIGN_OR_RETURN(const PartEvent event, DecodeEvent(record));
    Note(event.event);
    bytes += static_cast<int64_t>(record.size());
  }
  bytes_ += bytes;
  context_.shared->total_bytes += bytes;
  records_ = records;
  kept_ = records_.size();
  return absl::OkStatus();
}

std::vector<Event> KeptAnswer::EventsOf(int32_t part) const {
  MutexLock lock(&mutex_);
  std::vector<Event> events;
  for (const std::string& record : records_) {
    absl::StatusOr<PartEvent> event = DecodeEvent(record);
    if (event.ok() && event->part == part) events.push_back(std::move(event->event));
  }
  return events;
}

void KeptAnswer::Start(Count count) {
  MutexLock lock(&mutex_);
  started_ = true;
  count_ = std::move(count);
  CollectLocked();
}

// ---- Events ----

void KeptAnswer::Collect() {
  bool wake;
  {
    MutexLock lock(&mutex_);
    wake = CollectLocked();
  }
  if (wake) Wake();
}

bool KeptAnswer::CollectLocked() {
  if (!started_ || complete_ || suspended_ || dropped_) return false;
  std::vector<std::string> records;
  for (size_t part = 0; part < generations_.size() && !complete_ && !suspended_; ++part) {
    while (std::optional<Event> event = generations_[part]->Next()) {
      const auto* const error = std::get_if<absl::Status>(&*event);
      suspended_ = error != nullptr && absl::IsUnavailable(*error) && context_.shared->draining;
      if (suspended_) break;
      records.push_back(EncodeEvent(static_cast<int32_t>(part), *event));
      Note(*event);
      if (const auto* const tokens = std::get_if<Tokens>(&*event); tokens != nullptr && count_) {
        count_(static_cast<int64_t>(tokens->tokens.size()));
      }
      if (complete_) break;
    }
  }
  if (!records.empty()) Write(std::move(records));
  return suspended_;
}

void KeptAnswer::Note(const Event& event) {
  if (const auto* const accepted = std::get_if<Accepted>(&event)) {
    open_ += accepted->n;
    --unaccepted_;
  } else if (std::holds_alternative<Finished>(event)) {
    complete_ = --open_ == 0 && unaccepted_ == 0;
  } else if (const auto* const error = std::get_if<absl::Status>(&event)) {
    error_ = *error;
    complete_ = true;
  }
}

void KeptAnswer::Write(std::vector<std::string> records) {
  const bool first = records_.empty();
  int64_t bytes = 0;
  for (const std::string& record : records) bytes += static_cast<int64_t>(record.size());
  records_.insert(records_.end(), records.begin(), records.end());
  std::string head = first ? EncodeHead(head_) : "";
  bytes += static_cast<int64_t>(head.size());
  bytes_ += bytes;
  context_.shared->total_bytes += bytes;
  if (complete_) {
    count_ = nullptr;
    since_ = context_.clock->Now();
  }
  // Also what could not be written is told: its client is there, and an answer that cannot be kept
  // is one as without a journal.
  context_.journal->Append(number_, std::move(head), std::move(records),
                           [self = shared_from_this(), upto = records_.size()](bool /*kept*/) {
                             self->OnWritten(upto);
                           });
}

void KeptAnswer::OnWritten(size_t upto) {
  {
    MutexLock lock(&mutex_);
    kept_ = std::max(kept_, upto);
  }
  Wake();
}

void KeptAnswer::Wake() {
  std::function<void()> wake;
  {
    MutexLock lock(&mutex_);
    wake = wake_;
  }
  if (wake) wake();
}

// ---- Readers ----

absl::StatusOr<std::unique_ptr<KeptReader>> KeptAnswer::Read(int64_t from,
                                                             std::function<void()> wake) {
  std::function<void()> displaced;
  uint64_t number;
  {
    MutexLock lock(&mutex_);
    if (from < 0 || static_cast<size_t>(from) > kept_) {
      return absl::OutOfRangeError(
          absl::StrCat("answer ", head_.id, " has ", kept_, " events so far; the client says that ",
                       "it has ", from,
                       ": this is another answer, or the journal could not be written when the "
                       "rest was told"));
    }
    displaced = std::exchange(wake_, std::move(wake));
    number = ++reader_;
    has_reader_ = true;
  }
  if (displaced) displaced();
  return std::make_unique<KeptReader>(shared_from_this(), number, from);
}

KeptReader::Told KeptReader::Next() {
  std::string record;
  Told told;
  {
    MutexLock lock(&answer_->mutex_);
    if (number_ != answer_->reader_) {
      return {.event = {},
              .over = true,
              .why = absl::AbortedError("another client has come for this answer")};
    }
    if (answer_->dropped_) {
      return {.event = {}, .over = true, .why = absl::CancelledError("the answer was discarded")};
    }
    const bool all = answer_->complete_ && answer_->kept_ == answer_->records_.size();
    if (next_ < answer_->kept_) {
      record = answer_->records_[next_++];
    } else if (!all && answer_->suspended_) {
      return {.event = {},
              .over = true,
              .why = absl::UnavailableError(
                  "the coordinator is shutting down; its answers go on with the next one")};
    }
    told.over = all && next_ == answer_->records_.size();
    if (told.over) told.why = answer_->error_;
  }
  if (record.empty()) return told;
  absl::StatusOr<PartEvent> event = DecodeEvent(record);
  if (!event.ok()) return {.event = {}, .over = true, .why = event.status()};
  told.event = *std::move(event);
  if (auto* const accepted = std::get_if<Accepted>(&told.event->event)) {
    accepted->resume_window = answer_->context_.window;
  }
  return told;
}

void KeptAnswer::Leave(uint64_t reader) {
  MutexLock lock(&mutex_);
  if (reader != reader_) return;
  has_reader_ = false;
  wake_ = nullptr;
  since_ = context_.clock->Now();
}

// ---- The end ----

bool KeptAnswer::expired() const {
  MutexLock lock(&mutex_);
  return !has_reader_ && context_.clock->Now() - since_ >= context_.window;
}

std::optional<absl::Time> KeptAnswer::finished() const {
  MutexLock lock(&mutex_);
  if (!complete_ || has_reader_) return std::nullopt;
  return since_;
}

bool KeptAnswer::TakeFailure() {
  MutexLock lock(&mutex_);
  return complete_ && !error_.ok() && !std::exchange(failure_told_, true);
}

void KeptAnswer::Cancel() { service_->Cancel(generations_); }

void KeptAnswer::Drop() {
  {
    MutexLock lock(&mutex_);
    dropped_ = true;
    count_ = nullptr;
    context_.shared->total_bytes -= std::exchange(bytes_, 0);
  }
  Cancel();
  Wake();
}

}  // namespace skein::coordinator
