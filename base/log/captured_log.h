// What is logged while it lives.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace skein {

// Whatever logs has to end before it.
class CapturedLog {
 public:
  CapturedLog() { spdlog::set_default_logger(std::make_shared<spdlog::logger>("captured", sink_)); }
  ~CapturedLog() { spdlog::set_default_logger(std::move(before_)); }
  std::string text() const { return sink_->text(); }

 private:
  class Sink final : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::string text() {
      const std::lock_guard<std::mutex> lock(mutex_);
      return text_;
    }

   private:
    void sink_it_(const spdlog::details::log_msg& message) override {
      spdlog::memory_buf_t line;
      formatter_->format(message, line);
      text_.append(line.data(), line.size());
    }
    void flush_() override {}

    std::string text_;
  };

  const std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

}  // namespace skein
