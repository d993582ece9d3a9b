// Signs of life of threads that schedule or wait, which heartbeats carry: a thread that stops
// without a word would otherwise hold up its replica unnoticed. Threads that compute are judged by
// their step's deadline instead.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "parallel/comm/pulse.h"

namespace skein::worker {

// Thread-safe.
class ThreadBeats {
 public:
  // A thread says this often that it lives; its waits are cut into pieces of this length.
  static constexpr absl::Duration kInterval = absl::Milliseconds(500);

  class Excuse;

  // Tells when its thread last lived. Any thread may read it.
  class Beat {
   public:
    void Strike() { pulse_.Beat(); }
    absl::Duration still() const {
      if (excused_) return absl::ZeroDuration();
      return absl::Nanoseconds(comm::Pulse::NowNs() - pulse_.last_ns());
    }

    bool excused() const { return excused_; }

   private:
    friend class Excuse;
    comm::Pulse pulse_;
    std::atomic<bool> excused_ = false;
  };

  // Says, while it lives, that the thread waits for other ranks, which are judged themselves.
  // `beat` may be null.
  class Excuse {
   public:
    explicit Excuse(Beat* beat) : beat_(beat) {
      if (beat_ != nullptr) beat_->excused_ = true;
    }
    ~Excuse() {
      if (beat_ == nullptr) return;
      beat_->Strike();
      beat_->excused_ = false;
    }
    Excuse(const Excuse&) = delete;

   private:
    Beat* const beat_;
  };

  // Adds a beat by the name of its thread, like "scheduler". Owned by this; struck once.
  Beat* Add(std::string name) {
    auto beat = std::make_unique<Beat>();
    beat->Strike();
    MutexLock lock(&mutex_);
    return beats_.emplace_back(std::move(name), std::move(beat)).second.get();
  }

  // Tells whether a thread waits for other ranks.
  bool AnyExcused() const {
    MutexLock lock(&mutex_);
    return std::any_of(beats_.begin(), beats_.end(),
                       [](const auto& entry) { return entry.second->excused(); });
  }

  // Returns by name how long ago each thread last struck.
  std::vector<std::pair<std::string, absl::Duration>> Read() const {
    std::vector<std::pair<std::string, absl::Duration>> still;
    MutexLock lock(&mutex_);
    for (const auto& [name, beat] : beats_) still.emplace_back(name, beat->still());
    return still;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::pair<std::string, std::unique_ptr<Beat>>> beats_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace skein::worker
