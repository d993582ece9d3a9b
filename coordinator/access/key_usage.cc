#include "coordinator/access/key_usage.h"

#include <iterator>

namespace skein::coordinator {
namespace {

// A second counts until all of it lies a minute back.
constexpr int64_t kSeconds = 61;
// Nobody knows when an answer ends.
constexpr absl::Duration kStreamMayEnd = absl::Seconds(1);

int64_t SecondOf(absl::Time time) { return absl::ToUnixSeconds(time); }

}  // namespace

int64_t KeyUsage::FirstSecond() const { return SecondOf(clock_->Now()) - kSeconds + 1; }

KeyUsage::Key& KeyUsage::Current(const std::string& name, int64_t now) {
  Key& key = keys_[name];
  std::erase_if(key.seconds, [now](const auto& second) {
    return second.first <= now - kSeconds || second.first > now;
  });
  return key;
}

KeyUsage::Counts& KeyUsage::Changed(Key& key, const std::string& name, int64_t now) {
  changed_.emplace(name, now);
  return key.seconds[now];
}

std::optional<Excess> KeyUsage::Check(const Key& key, const char* limit,
                                      std::optional<int64_t> allowed, int64_t more,
                                      int64_t Counts::* count) const {
  if (!allowed.has_value()) return std::nullopt;
  int64_t used = 0;
  for (const auto& [second, counts] : key.seconds) used += counts.*count;
  if (used + more <= *allowed) return std::nullopt;
  Excess excess = {limit, *allowed, used + more, absl::InfiniteDuration()};
  // The oldest leave first.
  for (auto at = key.seconds.begin(); at != key.seconds.end() && more <= *allowed; ++at) {
    used -= at->second.*count;
    if (used + more > *allowed) continue;
    excess.again_after = absl::FromUnixSeconds(at->first + kSeconds) - clock_->Now();
    break;
  }
  return excess;
}

std::optional<Excess> KeyUsage::Begin(const std::string& name, const serving::KeyLimits& limits) {
  MutexLock lock(&mutex_);
  const int64_t now = SecondOf(clock_->Now());
  Key& key = Current(name, now);
  std::optional<Excess> longest;
  const auto consider = [&longest](std::optional<Excess> excess) {
    if (!excess.has_value()) return;
    if (!longest.has_value() || excess->again_after > longest->again_after) longest = excess;
  };
  consider(Check(key, "requests-per-minute", limits.requests_per_minute, 1, &Counts::requests));
  // There is a token at least to come.
  consider(Check(key, "tokens-per-minute", limits.tokens_per_minute, 1, &Counts::tokens));
  if (limits.streams.has_value() && key.streams >= *limits.streams) {
    consider(Excess{"streams", *limits.streams, key.streams + 1, kStreamMayEnd});
  }
  if (longest.has_value()) return longest;
  ++Changed(key, name, now).requests;
  ++key.streams;
  return std::nullopt;
}

std::optional<Excess> KeyUsage::AddPrompt(const std::string& name, const serving::KeyLimits& limits,
                                          int64_t tokens) {
  MutexLock lock(&mutex_);
  const int64_t now = SecondOf(clock_->Now());
  Key& key = Current(name, now);
  const std::optional<Excess> excess =
      Check(key, "tokens-per-minute", limits.tokens_per_minute, tokens, &Counts::tokens);
  if (!excess.has_value()) Changed(key, name, now).tokens += tokens;
  return excess;
}

void KeyUsage::AddAnswer(const std::string& name, int64_t tokens) {
  MutexLock lock(&mutex_);
  const int64_t now = SecondOf(clock_->Now());
  Changed(Current(name, now), name, now).tokens += tokens;
}

void KeyUsage::End(const std::string& name) {
  MutexLock lock(&mutex_);
  --keys_[name].streams;
}

std::vector<SecondOfUse> KeyUsage::TakeChanges() {
  MutexLock lock(&mutex_);
  const int64_t now = SecondOf(clock_->Now());
  std::vector<SecondOfUse> taken;
  for (const auto& [name, second] : changed_) {
    const Key& key = Current(name, now);
    const auto found = key.seconds.find(second);
    if (found == key.seconds.end()) continue;  // too old by now
    taken.push_back({name, second, found->second.requests, found->second.tokens});
  }
  changed_.clear();
  for (auto at = keys_.begin(); at != keys_.end();) {
    const Key& key = Current(at->first, now);
    at = key.seconds.empty() && key.streams == 0 ? keys_.erase(at) : std::next(at);
  }
  return taken;
}

void KeyUsage::Restore(const std::vector<SecondOfUse>& seconds) {
  MutexLock lock(&mutex_);
  const int64_t now = SecondOf(clock_->Now());
  for (const SecondOfUse& of : seconds) {
    Counts& counts = keys_[of.name].seconds[of.second];
    counts.requests += of.requests;
    counts.tokens += of.tokens;
    Current(of.name, now);
  }
}

}  // namespace skein::coordinator
