// The clock device as torch sees it: guard, hooks, allocators and operators of PrivateUse1.
//
// Operators compute at once, in the host's memory, with torch's own kernels for the CPU; on the device's clock they take
// what was planted. So results are right, and time is known.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/library.h>

#include <set>

#include "clock.h"
#include "memory.h"

namespace clock_device {
namespace {

constexpr auto kType = c10::DeviceType::PrivateUse1;
thread_local std::map<int, int64_t> current_streams;
thread_local int inside = 0;  // a kernel of the CPU is at work: copies to it and back are no work of the device

const std::set<std::string> kWaiting = {  // operators whose result has a size that only the device knows
    "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::equal", "aten::unique_dim"};

Line line_of(int device) {
  const auto found = current_streams.find(device);
  return {device, found == current_streams.end() ? 0 : found->second};
}
Line line_of(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kType;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}

  static c10::Device at_index(int index) { return {kType, static_cast<c10::DeviceIndex>(index)}; }
  static c10::Stream stream_at(Line line) {
    return c10::Stream(c10::Stream::UNSAFE, at_index(line.first), line.second);
  }

  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return at_index(current_device); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < deviceCount(), "there is no device ", device);
    uncheckedSetDevice(device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) current_device = device.index();
  }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return stream_at(line_of(device.index() < 0 ? current_device : device.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_at({device.index() < 0 ? current_device : device.index(), 0});
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool /*high*/) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int /*priority*/) const override {
    return stream_at({device.index() < 0 ? current_device : device.index(), the_clock().new_stream()});
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const auto before = getStream(stream.device());
    current_streams[stream.device_index()] = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(the_clock().settings.devices);
  }

  void destroyEvent(void* event, const c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex /*index*/,
              const c10::EventFlag /*flag*/) const override {
    if (!*event) *event = new Event;
    the_clock().record(*static_cast<Event*>(*event), line_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) the_clock().hold(line_of(stream), static_cast<Event*>(event)->completes);
  }
  bool queryEvent(void* event) const override {
    return !event || the_clock().reached(static_cast<Event*>(event)->completes);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return the_clock().reached(the_clock().end_of(line_of(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    the_clock().synchronise("stream", the_clock().end_of(line_of(stream)));
  }
  void synchronizeEvent(void* event) const override {
    if (event) the_clock().synchronise("event", static_cast<Event*>(event)->completes);
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    the_clock().synchronise("device", the_clock().end_of_device(index < 0 ? current_device : index));
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex /*index*/) const override {
    TORCH_CHECK(first && second, "both events must be recorded");
    return static_cast<double>(static_cast<Event*>(second)->completes - static_cast<Event*>(first)->completes) / 1e6;
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return the_clock().settings.devices > 0; }
  bool hasPrimaryContext(c10::DeviceIndex /*index*/) const override { return true; }
  void init() const override {}
  c10::DeviceIndex deviceCount() const override { return Guard().deviceCount(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { Guard().setDevice(Guard::at_index(index)); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return Guard().exchangeDevice(Guard::at_index(index)).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 || index >= deviceCount() ? getCurrentDevice() : exchangeDevice(index);
  }
  bool isPinnedPtr(const void* data) const override { return pinned_memory().holds(data); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory(); }
  at::Device getDeviceFromPtr(void* /*data*/) const override { return Guard::at_index(current_device); }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex /*index*/) const override {
    return at::detail::getDefaultCPUGenerator();  // whose kernels draw the numbers
  }
  at::Generator getNewGenerator(c10::DeviceIndex /*index*/) const override { return at::detail::createCPUGenerator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    auto* impl = storage.unsafeGetStorageImpl();
    const c10::DeviceGuard guard(storage.device());
    auto fresh = device_memory().allocate(bytes);
    if (fresh.get() && storage.data()) std::memcpy(fresh.get(), storage.data(), std::min(bytes, storage.nbytes()));
    impl->set_data_ptr_noswap(std::move(fresh));
    impl->set_nbytes(bytes);
  }
};

at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

// Who asks for memory on a device has it laid out there.
at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout> /*layout*/,
                 std::optional<at::Device> device, std::optional<bool> /*pin*/,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(size, &device_memory(), keys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout> /*layout*/, std::optional<at::Device> device,
                         std::optional<bool> /*pin*/) {
  const c10::DeviceGuard guard(c10::device_or_default(device));
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(size, stride, &device_memory(), keys, c10::dtype_or_default(type));
}

// A copy between host and device blocks the host, unless it was asked not to and the host's side is pinned.
void take_copy(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  auto& clock = the_clock();
  if (from.device() == to.device()) {
    clock.enqueue("aten::copy_", line_of(to.get_device()), clock.cost_of("aten::copy_"));
    return;
  }
  const auto& device = from.is_cpu() ? to : from;
  const Line line = line_of(device.get_device());
  if (!from.is_cpu() && !to.is_cpu()) {  // the one sends when it is done, the other waits for it
    const Ns done = clock.enqueue("peer", line, static_cast<Ns>(clock.settings.pinned * to.nbytes()));
    clock.hold(line_of(to.get_device()), done);
    return;
  }
  const bool pinned = pinned_memory().holds((from.is_cpu() ? from : to).const_data_ptr());
  const double each = pinned ? clock.settings.pinned : clock.settings.pageable;
  const Ns done = clock.enqueue("transfer", line, static_cast<Ns>(each * to.nbytes()));
  if (!(pinned && non_blocking)) clock.synchronise("copy", done);
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (!inside) take_copy(from, to, non_blocking);
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Scalar local_scalar(const at::Tensor& tensor) {
  if (!inside) the_clock().synchronise("item", the_clock().end_of(line_of(tensor.get_device())));
  return on_host(tensor).item();
}

at::Tensor as_strided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                      std::optional<c10::SymInt> offset) {
  const auto place = offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt;
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), place);
}
at::Tensor view(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}
at::Tensor reshape_alias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}
at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}
const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}
at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) { return at::native::set_tensor_(self, source); }
at::Tensor& set_storage(at::Tensor& self, at::Storage source) { return at::native::set_(self, source); }
at::Tensor& set_storage_at(at::Tensor& self, at::Storage storage, c10::SymInt offset, c10::SymIntArrayRef size,
                           c10::SymIntArrayRef stride) {
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset.expect_int());
  const auto sizes = C10_AS_INTARRAYREF_SLOW(size);
  if (stride.empty()) impl->set_sizes_contiguous(sizes);  // as `torch.save` asks for a storage as bytes
  else impl->set_sizes_and_strides(sizes, C10_AS_INTARRAYREF_SLOW(stride));
  return self;
}
void record_stream(at::Tensor& /*self*/, at::Stream /*stream*/) {}

at::Tensor on_device(const at::Tensor& result, at::Device device) {
  if (!result.defined()) return result;
  auto there = at::empty(result.sizes(), result.options().device(device));
  on_host(there).copy_(result);
  return there;
}

// torch has no general kernel for these two: a backend brings its own.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, int64_t groups) {
  auto& clock = the_clock();
  clock.enqueue("aten::convolution", line_of(input.get_device()), clock.cost_of("aten::convolution"));
  const auto added = bias && bias->defined() ? std::optional(on_host(*bias)) : std::nullopt;
  const auto result = at::convolution(on_host(input), on_host(weight), added, stride, padding, dilation, transposed,
                                      output_padding, groups);
  return on_device(result, input.device());
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  auto& clock = the_clock();
  const std::string name = "aten::convolution_backward";
  clock.enqueue(name, line_of(input.get_device()), clock.cost_of(name));
  const std::vector<int64_t> bias{gradient.size(1)};
  const auto [for_input, for_weight, for_bias] =
      at::convolution_backward(on_host(gradient), on_host(input), on_host(weight), at::OptionalIntArrayRef(bias), stride,
                               padding, dilation, transposed, output_padding, groups, wanted);
  const auto device = input.device();
  return {on_device(for_input, device), on_device(for_weight, device), on_device(for_bias, device)};
}

int device_among(const torch::jit::Stack& arguments) {
  for (const auto& each : arguments) {
    if (each.isTensor() && each.toTensor().defined() && each.toTensor().device().type() == kType)
      return each.toTensor().get_device();
    if (each.isTensorList())
      for (const at::Tensor& one : each.toTensorList())
        if (one.defined() && one.device().type() == kType) return one.get_device();
  }
  return current_device;
}

// Every operator that has none of its own: planted time on the device, and the CPU's kernel.
void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::string& name = op.operator_name().name;
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const int device = device_among({arguments.begin(), arguments.end()});
  auto& clock = the_clock();
  if (!inside) {
    const Ns done = clock.enqueue(name, line_of(device), clock.cost_of(name));
    if (kWaiting.count(name)) clock.synchronise("size", done);
  }
  const c10::DeviceGuard guard(Guard::at_index(device));
  struct Inside {
    Inside() { ++inside; }
    ~Inside() { --inside; }
  } const at_work;
  at::native::cpu_fallback(op, stack);
}

const int registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(kType, &device_memory());
  at::setHostAllocator(at::kPrivateUse1, &pinned_memory());
  return 0;
}();

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("as_strided", as_strided);
  library.impl("view", view);
  library.impl("_reshape_alias", reshape_alias);
  library.impl("unfold", unfold);
  library.impl("resize_", resize);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", local_scalar);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("set_.source_Storage", set_storage);
  library.impl("set_.source_Storage_storage_offset", set_storage_at);
  library.impl("record_stream", record_stream);
  library.impl("convolution_overrideable", convolution);
  library.impl("convolution_backward_overrideable", convolution_backward);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}

}  // namespace clock_device

PYBIND11_MODULE(_clock_device, module) {
  using namespace clock_device;
  namespace py = pybind11;
  module.def(
      "configure",
      [](bool planted, int devices, Ns launch, Ns other, double pinned, double pageable, size_t depth, size_t memory,
         bool logs, std::map<std::string, Ns> costs) {
        the_clock().configure({planted, devices, launch, other, pinned, pageable, depth, memory, logs});
        the_clock().costs = std::move(costs);
      },
      py::kw_only(), py::arg("planted"), py::arg("devices"), py::arg("launch"), py::arg("other"), py::arg("pinned"),
      py::arg("pageable"), py::arg("depth"), py::arg("memory"), py::arg("logs"), py::arg("costs"));
  module.def("now", [] { return the_clock().now(); });
  module.def("spend", [](Ns time) { the_clock().spend(time); }, py::call_guard<py::gil_scoped_release>());
  module.def("counts", [] { return the_clock().counts; });
  module.def("enqueue", [](const std::string& what, int device, int64_t stream, Ns cost) {
    return the_clock().enqueue(what, {device, stream}, cost);
  });
  module.def("log", [] {
    std::vector<std::tuple<std::string, int, int64_t, Ns, Ns>> rows;
    for (const auto& each : the_clock().log) rows.emplace_back(each.what, each.device, each.stream, each.begins, each.ends);
    return rows;
  });
  module.def("current_device", [] { return current_device; });
  module.def("set_device", [](int index) { Guard().setDevice(Guard::at_index(index)); });
  module.def("device_count", [] { return the_clock().settings.devices; });
}
