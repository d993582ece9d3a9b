#include "worker/engine/inbox.h"

#include <algorithm>
#include <utility>

namespace skein::worker {
namespace {

const auto kBeatInterval = absl::ToChronoNanoseconds(ThreadBeats::kInterval);

}  // namespace

void Inbox::Submit(serving::Request request) {
  MutexLock lock(&mutex_);
  contents_.requests.push_back(std::move(request));
  changed_.NotifyOne();
}

void Inbox::Cancel(serving::RequestId id, std::optional<int32_t> answer) {
  MutexLock lock(&mutex_);
  contents_.cancelled.push_back({id, answer});
  changed_.NotifyOne();
}

uint64_t Inbox::NewEpoch() {
  MutexLock lock(&mutex_);
  contents_.requests.clear();
  contents_.cancelled.clear();
  contents_.cancel_all = true;
  messages_ = 0;
  messages_taken_ = 0;
  changed_.NotifyOne();
  return ++contents_.epoch;
}

void Inbox::EndMessage() {
  MutexLock lock(&mutex_);
  ++messages_;
  changed_.NotifyOne();
}

void Inbox::Deliver(StepResult result) {
  MutexLock lock(&mutex_);
  contents_.results.push_back(std::move(result));
  changed_.NotifyOne();
}

void Inbox::Stop() {
  MutexLock lock(&mutex_);
  contents_.stop = true;
  changed_.NotifyOne();
}

bool Inbox::HasSomething() const {
  return !contents_.requests.empty() || !contents_.cancelled.empty() ||
         !contents_.results.empty() || contents_.cancel_all || messages_ > messages_taken_;
}

Inbox::Contents Inbox::Take(std::chrono::steady_clock::time_point deadline, bool stopping,
                            ThreadBeats::Beat* beat) {
  MutexLock lock(&mutex_);
  while (!HasSomething() && (stopping || !contents_.stop)) {
    if (beat != nullptr) beat->Strike();
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) break;
    changed_.WaitUntil(&mutex_, std::min(deadline, now + kBeatInterval));
  }
  if (beat != nullptr) beat->Strike();
  messages_taken_ = messages_.load();
  return std::exchange(contents_, Contents{.epoch = contents_.epoch, .stop = contents_.stop});
}

}  // namespace skein::worker
