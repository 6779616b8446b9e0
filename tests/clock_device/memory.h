// Memory of the clock device: it lies in the host's, is counted, and ends where the settings say.

#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <unordered_map>

#include "clock.h"

namespace clock_device {

inline thread_local int current_device = 0;

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    const c10::Device device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(current_device));
    if (!bytes) return {nullptr, nullptr, &release, device};
    void* data = take(bytes, current_device);
    return {data, data, &release, device};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t count) const override { std::memcpy(to, from, count); }
  bool initialized() override { return true; }

  void emptyCache(c10::MempoolId_t /*pool*/) override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [device, use] : used_) flush(use);
  }
  void recordStream(const at::DataPtr& /*data*/, c10::Stream /*stream*/) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return used_[device];
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(mutex_);
    used_[device].allocated_bytes[0].reset_accumulated();
    used_[device].reserved_bytes[0].reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(mutex_);
    used_[device].allocated_bytes[0].reset_peak();
    used_[device].reserved_bytes[0].reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const size_t total = the_clock().settings.memory;
    const auto reserved = static_cast<size_t>(used_[device].reserved_bytes[0].current);
    return {total > reserved ? total - reserved : 0, total};
  }

 private:
  using Use = c10::CachingDeviceAllocator::DeviceStats;
  static constexpr size_t kSegment = size_t{2} << 20;

  static void release(void* data);

  void* take(size_t bytes, int device) {
    std::lock_guard<std::mutex> lock(mutex_);
    Use& use = used_[static_cast<c10::DeviceIndex>(device)];
    auto& allocated = use.allocated_bytes[0];
    auto& reserved = use.reserved_bytes[0];
    const size_t limit = the_clock().settings.memory;
    const size_t wanted = static_cast<size_t>(allocated.current) + bytes;
    if (wanted > static_cast<size_t>(reserved.current)) {
      const size_t segments = (wanted + kSegment - 1) / kSegment * kSegment;
      if (segments > limit) {
        ++use.num_alloc_retries;
        flush(use);
      }
      if (wanted > limit) {
        ++use.num_ooms;
        C10_THROW_ERROR(
            OutOfMemoryError,
            c10::str("clock device out of memory. Tried to allocate ", bytes, " bytes: ", allocated.current, " of ",
                     limit, " are allocated on device ", device, "."));
      }
      const size_t grown = std::min(std::max(segments, wanted), std::max(limit, wanted));
      use.reserved_bytes[0].increase(grown - static_cast<size_t>(reserved.current));
      ++use.num_device_alloc;
    }
    allocated.increase(bytes);
    void* data = nullptr;
    TORCH_CHECK(!posix_memalign(&data, 64, bytes), "the host has no ", bytes, " bytes for the clock device");
    blocks_[data] = {bytes, device};
    return data;
  }

  void give_back(void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return;
    used_[static_cast<c10::DeviceIndex>(found->second.second)].allocated_bytes[0].decrease(found->second.first);
    blocks_.erase(found);
    std::free(data);
  }

  static void flush(Use& use) {
    auto& reserved = use.reserved_bytes[0];
    reserved.decrease(static_cast<size_t>(reserved.current - use.allocated_bytes[0].current));
  }

  std::mutex mutex_;
  std::map<c10::DeviceIndex, Use> used_;
  std::unordered_map<void*, std::pair<size_t, int>> blocks_;
};

inline DeviceMemory& device_memory() {
  static auto* memory = new DeviceMemory;
  return *memory;
}

inline void DeviceMemory::release(void* data) {
  if (data) device_memory().give_back(data);
}

// Pinned memory is memory of the host that is remembered as pinned.
class PinnedMemory final : public at::HostAllocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    void* data = nullptr;
    if (bytes) {
      TORCH_CHECK(!posix_memalign(&data, 64, bytes), "the host has no ", bytes, " bytes to pin");
      std::lock_guard<std::mutex> lock(mutex_);
      blocks_[static_cast<const char*>(data)] = bytes;
    }
    return {data, data, &release, at::DeviceType::CPU};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t count) const override { std::memcpy(to, from, count); }
  bool record_event(void* /*data*/, void* /*context*/, c10::Stream /*stream*/) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool holds(const void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto after = blocks_.upper_bound(static_cast<const char*>(data));
    if (after == blocks_.begin()) return false;
    --after;
    return static_cast<const char*>(data) < after->first + after->second;
  }

 private:
  static void release(void* data);

  std::mutex mutex_;
  std::map<const char*, size_t> blocks_;
};

inline PinnedMemory& pinned_memory() {
  static auto* memory = new PinnedMemory;
  return *memory;
}

inline void PinnedMemory::release(void* data) {
  if (!data) return;
  auto& memory = pinned_memory();
  {
    std::lock_guard<std::mutex> lock(memory.mutex_);
    memory.blocks_.erase(static_cast<const char*>(data));
  }
  std::free(data);
}

}  // namespace clock_device
