// Time on the clock device: a host clock, a clock per stream, events that read them, and waits that are counted.
//
// The host clock is the machine's monotonic one, or, with `planted`, one that moves only where somebody spends time on
// it. Then nothing is left to chance: a job takes what was planted, to the nanosecond, whatever else the machine does.

#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

namespace clock_device {

using Ns = int64_t;
using Line = std::pair<int, int64_t>;  // device, stream

struct Event {
  Ns completes = 0;
  Line line{0, 0};
};

struct Done {
  std::string what;
  int device;
  int64_t stream;
  Ns begins;
  Ns ends;
};

struct Settings {
  bool planted = false;
  int devices = 2;
  Ns launch = 0;           // of host time, for every operator
  Ns other = 0;            // of device time, for operators without a cost of their own
  double pinned = 0.0;     // nanoseconds for each byte of a copy
  double pageable = 0.0;
  size_t depth = 1024;     // operators that a stream takes before the host has to wait
  size_t memory = size_t{1} << 34;
  bool logs = false;
};

class Clock {
 public:
  Settings settings;
  std::map<std::string, Ns> costs;
  std::map<std::string, int64_t> counts;  // of waits, queries, records and launches
  std::vector<Done> log;

  void configure(const Settings& chosen) {
    std::lock_guard<std::mutex> lock(mutex_);
    settings = chosen;
    costs.clear();
    counts.clear();
    log.clear();
    const Ns at = real();
    host_ = std::max(host_, at);
    for (auto& [line, stream] : streams_) stream = Stream{now_locked(), {}};
  }

  Ns now() {
    std::lock_guard<std::mutex> lock(mutex_);
    return now_locked();
  }

  // The host computes for that long.
  void spend(Ns time) {
    if (settings.planted) {
      std::lock_guard<std::mutex> lock(mutex_);
      host_ += time;
    } else if (time > 0) {
      const Ns until = real() + time;
      while (real() < until) {
      }
    }
  }

  // Queues work and returns when it will be done.
  Ns enqueue(const std::string& what, Line line, Ns cost) {
    spend(settings.launch);
    Ns room = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      auto& queue = streams_[line].queue;
      const Ns at = now_locked();
      while (!queue.empty() && queue.front() <= at) queue.pop_front();
      if (queue.size() >= settings.depth) {
        room = queue.front();
        ++counts["queue_full"];
      }
    }
    if (room) wait(room);
    std::lock_guard<std::mutex> lock(mutex_);
    ++counts["launches"];
    auto& stream = streams_[line];
    const Ns begins = std::max(stream.at, now_locked());
    stream.at = begins + cost;
    if (cost > 0) {
      stream.queue.push_back(stream.at);
      if (settings.logs) log.push_back({what, line.first, line.second, begins, stream.at});
    }
    return stream.at;
  }

  // What is queued on `line` from here on begins no sooner.
  void hold(Line line, Ns until) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& stream = streams_[line];
    stream.at = std::max(stream.at, until);
  }

  Ns end_of(Line line) {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::max(streams_[line].at, Ns{0});
  }

  Ns end_of_device(int device) {
    std::lock_guard<std::mutex> lock(mutex_);
    Ns latest = 0;
    for (const auto& [line, stream] : streams_)
      if (line.first == device) latest = std::max(latest, stream.at);
    return latest;
  }

  void record(Event& event, Line line) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++counts["records"];
    event.line = line;
    event.completes = std::max(streams_[line].at, now_locked());
  }

  bool reached(Ns moment) {
    std::lock_guard<std::mutex> lock(mutex_);
    ++counts["queries"];
    if (settings.planted) host_ += kQuestion;
    return now_locked() >= moment;
  }

  // The host waits for the device: the one thing that a probe must not bring about.
  void synchronise(const char* how, Ns until) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++counts[how];
    }
    wait(until);
  }

  Ns cost_of(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = costs.find(name);
    return found == costs.end() ? settings.other : found->second;
  }

  int64_t new_stream() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ++latest_stream_;
  }

 private:
  static constexpr Ns kQuestion = 200;  // of the host, so that who asks again and again gets somewhere

  struct Stream {
    Ns at = 0;
    std::deque<Ns> queue;
  };

  static Ns real() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  Ns now_locked() { return settings.planted ? host_ : real(); }

  void wait(Ns until) {
    if (settings.planted) {
      std::lock_guard<std::mutex> lock(mutex_);
      host_ = std::max(host_, until);
      return;
    }
    constexpr Ns kAwake = 100'000;  // a sleep ends late by about as much
    for (Ns left = until - real(); left > 0; left = until - real())
      if (left > kAwake) std::this_thread::sleep_for(std::chrono::nanoseconds(left - kAwake));
  }

  std::mutex mutex_;
  Ns host_ = 0;
  int64_t latest_stream_ = 0;
  std::map<Line, Stream> streams_;
};

inline Clock& the_clock() {
  static Clock* clock = new Clock;  // outlives every tensor
  return *clock;
}

}  // namespace clock_device
