// Catches: code that is loaded while a stream records, so that the capture breaks; modules that are not unloaded with
// their owner; driver errors that do not name the code; and launches that a graph does not record.
#include "tessera/device/cuda/cuda_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tessera/device/cuda/testing/fake_driver.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaModules : public testing::Test {
 protected:
  int launched() {
    std::array<std::byte, 1> back{};
    EXPECT_TRUE(stream_->download(back.data(), memory_->data(), 1).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    return static_cast<int>(back[0]);
  }

  FakeDriver fake_;
  std::unique_ptr<CudaDevice> device_ = std::move(CudaDevice::create({.driver = &fake_.table()})).value();
  std::unique_ptr<Stream> stream_ = std::move(device_->create_stream("main")).value();
  std::unique_ptr<Allocation> memory_ = std::move(device_->allocate(1, "counter")).value();
};

TEST_F(CudaModules, RunsNowAndInAGraph) {
  ASSERT_TRUE(stream_->fill(memory_->data(), 0, 1).ok());
  const int objects = fake_.live_objects();
  {
    const Result<std::unique_ptr<CudaModule>> module = CudaModule::load(*device_, "fused_rows", "code");
    ASSERT_TRUE(module.ok()) << module.status().to_string();
    const std::array<std::uint64_t, 1> arguments{reinterpret_cast<std::uintptr_t>(memory_->data().raw())};
    const CudaLaunchShape shape{.blocks = 2, .threads = 32, .early = true};
    CudaStream& stream = as_cuda(*stream_);
    EXPECT_TRUE((*module)->launch(stream, shape, arguments).ok());
    EXPECT_TRUE((*module)->launch(stream, {.blocks = 0, .threads = 32}, arguments).ok());
    EXPECT_EQ(launched(), 1);
    ASSERT_TRUE(stream_->begin_recording("piece 0").ok());
    EXPECT_TRUE((*module)->launch(stream, shape, arguments).ok());
    const Result<std::unique_ptr<RecordedGraph>> graph = stream_->end_recording();
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    EXPECT_TRUE((*graph)->launch(*stream_).ok());
    EXPECT_TRUE((*graph)->launch(*stream_).ok());
    EXPECT_EQ(launched(), 3);
  }
  EXPECT_EQ(fake_.live_objects(), objects);
}

TEST_F(CudaModules, IsRefusedWhileAStreamRecords) {
  ASSERT_TRUE(stream_->begin_recording("piece 0").ok());
  EXPECT_THAT(CudaModule::load(*device_, "fused_rows", "code").status().message(),
              AllOf(HasSubstr("fused_rows"), HasSubstr("piece 0")));
  EXPECT_EQ(fake_.calls("cuModuleLoadData"), 0);
  EXPECT_TRUE(stream_->end_recording().ok());
}

TEST_F(CudaModules, NamesCodeThatTheDriverRefuses) {
  EXPECT_THAT(CudaModule::load(*device_, "fused_rows", "x").status().message(),
              AllOf(HasSubstr("cuModuleLoadData"), HasSubstr("fused_rows")));
  const int objects = fake_.live_objects();
  fake_.fail("cuModuleGetFunction", 1, CUDA_ERROR_NOT_FOUND);
  EXPECT_THAT(CudaModule::load(*device_, "fused_rows", "code").status().message(), HasSubstr("cuModuleGetFunction"));
  EXPECT_EQ(fake_.live_objects(), objects);
}

}  // namespace
}  // namespace tessera
