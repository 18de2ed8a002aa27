#include "tessera/ops/fused/row_cuda_builder.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <mutex>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/cuda_module.h"
#include "tessera/device/cuda/nvrtc.h"
#include "tessera/ops/fused/cuda_source.h"
#include "tessera/ops/fused/row_kernel_builder.h"

namespace tessera {
namespace {

constexpr int kFirstEarly = 90;  // the lowest compute capability on which kernels are launched early

// Returns the GPU's own compute capability as 10 · major + minor, even if kernels for an older GPU are chosen.
Result<int> capability_of(CudaDevice& device) {
  int major = 0;
  int minor = 0;
  const DriverCall call{"cuDeviceGetAttribute", DeviceCall::kInitialiseLibrary, kCudaEntry};
  const Driver& driver = device.driver();
  TRY(device.check(driver.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device.handle()),
                   call));
  TRY(device.check(driver.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device.handle()),
                   call));
  return 10 * major + minor;
}

CudaDevice& as_cuda_device(Device& device) { return static_cast<CudaDevice&>(device); }

class CudaRowOp final : public BoundOp {
 public:
  CudaRowOp(std::shared_ptr<const CudaModule> module, CudaRowLaunch launch, bool early)
      : module_(std::move(module)), launch_(std::move(launch)), early_(early) {}

  Status enqueue(Stream& stream) const override {
    return module_->launch(as_cuda(stream), {.blocks = launch_.blocks, .threads = launch_.threads, .early = early_},
                           launch_.arguments);
  }

 private:
  std::uint64_t choice() const override { return reinterpret_cast<std::uintptr_t>(module_.get()); }

  std::shared_ptr<const CudaModule> module_;
  CudaRowLaunch launch_;
  bool early_;
};

class CudaRowCode final : public RowKernelCode {
 public:
  CudaRowCode(RowKernel kernel, CudaSchedule schedule, std::shared_ptr<const CudaModule> module, bool early)
      : kernel_(std::move(kernel)), schedule_(std::move(schedule)), module_(std::move(module)), early_(early) {}

  std::int64_t rows(const BindArgs& args) const override {
    for (const RowValue& value : kernel_.values)
      if (value.op == RowOp::kLoad)
        return args.operands[static_cast<std::size_t>(value.operand)].elements() / value.width;
    return 0;
  }

  // Returns the possible schedules. A schedule is the number of threads in a block. One compiled module serves all
  // schedules.
  std::vector<std::int64_t> schedules(const BindArgs& /*args*/) const override { return block_sizes(schedule_); }

  Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args, std::int64_t threads) const override {
    std::vector<std::uint64_t> addresses;
    std::vector<std::int64_t> elements;
    for (const std::span<const TensorView> views : {args.operands, args.results})
      for (const TensorView& view : views) {
        addresses.push_back(reinterpret_cast<std::uintptr_t>(view.data.raw()));
        elements.push_back(view.elements());
      }
    for (const RowStore& store : kernel_.stores)
      elements[static_cast<std::size_t>(store.operand)] /= kernel_.values[static_cast<std::size_t>(store.value)].width;
    const CudaRowLaunch launch =
        cuda_launch(kernel_, with_threads(schedule_, threads), rows(args), addresses, elements);
    return std::make_unique<CudaRowOp>(module_, launch, early_);
  }

 private:
  RowKernel kernel_;
  CudaSchedule schedule_;
  std::shared_ptr<const CudaModule> module_;
  bool early_;
};

// The code that this process has compiled. It is kept, because several runners (runner/) may have equal kernels.
struct Compiled {
  std::mutex mutex;
  std::map<std::pair<int, std::string>, std::string> code;  // key: architecture and source
};
Compiled& compiled() {
  static Compiled all;
  return all;
}

class CudaRowKernels final : public RowKernelBuilder {
 public:
  std::string_view name() const override { return "nvrtc"; }
  Result<std::string> version(Device& device) const override {
    const Nvrtc* nvrtc = TRY(Nvrtc::load());
    return fmt::format("nvrtc {} sm_{}", nvrtc->version(), TRY(capability_of(as_cuda_device(device))));
  }
  Result<std::string> source(const RowKernel& kernel) const override { return cuda_source(kernel); }
  Result<std::string> compile(const std::string& source, Device& device) const override {
    const int capability = TRY(capability_of(as_cuda_device(device)));
    Compiled& known = compiled();
    {
      const std::lock_guard lock(known.mutex);
      const auto found = known.code.find({capability, source});
      if (found != known.code.end()) return found->second;
    }
    std::string code = TRY(TRY(Nvrtc::load())->compile(source, kCudaEntry, capability));
    const std::lock_guard lock(known.mutex);
    known.code[{capability, source}] = code;
    return code;
  }
  Result<std::shared_ptr<const RowKernelCode>> load(const RowKernel& kernel, const std::string& code,
                                                    Device& device) const override {
    CudaDevice& cuda = as_cuda_device(device);
    std::unique_ptr<CudaModule> module = TRY(CudaModule::load(cuda, kCudaEntry, code));
    const bool early = device.properties().compute_capability >= kFirstEarly;
    return std::make_shared<const CudaRowCode>(kernel, TRY(cuda_schedule(kernel)),
                                               std::shared_ptr<const CudaModule>(std::move(module)), early);
  }
};

}  // namespace

const RowKernelBuilder& cuda_row_kernels() {
  static const CudaRowKernels builder;
  return builder;
}

}  // namespace tessera
