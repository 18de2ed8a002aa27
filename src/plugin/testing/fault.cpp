// A plugin with one fault, which a macro of the build selects. With FAULT_NONE it has no fault, for comparison. The
// variants FAULT_RIVAL_* add an operator or a kernel that the variant FAULT_NONE adds too.
#include <tessera_plugin.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <thread>

#ifdef FAULT_OLD_ABI
extern "C" TESSERA_PLUGIN_EXPORT const tessera_plugin_info tessera_plugin;
const tessera_plugin_info tessera_plugin = {sizeof(tessera_plugin_info), 99, "fault", "1.0"};
#elif defined(FAULT_RIVAL_OP) || defined(FAULT_RIVAL_KERNEL)
TESSERA_PLUGIN("rival", "1.0")
#elif !defined(FAULT_NO_INFO)
TESSERA_PLUGIN("fault", "1.0")
#endif

#ifdef FAULT_UNDEFINED
extern "C" int32_t nobody_has_this();
#endif

namespace {

#ifdef FAULT_CRASH_AT_LOAD
[[maybe_unused]] const int crashed = std::raise(SIGSEGV);  // runs before any function of the plugin is called
#endif

#define CHECK_CALL(expression) \
  if (const int32_t code = (expression); code != TESSERA_PLUGIN_OK) return code

// The shape rule of y = x, unless the build selects another rule.
int32_t infer(void*, const tessera_plugin_node* node, tessera_plugin_type* results, size_t* num_results,
              tessera_plugin_error* error) {
#ifdef FAULT_RULE_THROWS
  throw std::runtime_error("no types today");
#endif
#ifdef FAULT_RULE_REFUSES
  return tessera_plugin_fail(error, TESSERA_PLUGIN_INVALID_ARGUMENT, "x is not to my taste");
#endif
  (void)error;
  results[0] = node->operands[0];
#ifdef FAULT_LYING_RULE
  const tessera_plugin_dim& rows = node->operands[0].dims[0];
  if (rows.coefficients[TESSERA_PLUGIN_T] == 0) results[0].dims[0].constant += 1;
#endif
  *num_results = 1;
  return TESSERA_PLUGIN_OK;
}

int live = 0;      // bound kernels that were not released
int failing = -1;  // number of launches before one fails; -1 if none fails

int32_t bind(void*, const tessera_plugin_call*, void** bound, tessera_plugin_error* error) {
#ifdef FAULT_BIND_REFUSES
  return tessera_plugin_fail(error, TESSERA_PLUGIN_UNIMPLEMENTED, "not on a Sunday");
#endif
  (void)error;
  *bound = new int(0);
  ++live;
  return TESSERA_PLUGIN_OK;
}

int32_t enqueue(const void*, void*, tessera_plugin_error* error) {
  if (failing-- == 0) return tessera_plugin_fail(error, TESSERA_PLUGIN_INTERNAL, "the kernel has had enough");
  return TESSERA_PLUGIN_OK;
}

void release(void* bound) {
  delete static_cast<int*>(bound);
  --live;
}

const tessera_plugin_operand kOperands[] = {{"x", 0, 0}};

tessera_plugin_operator make_operator(const char* name) {
  tessera_plugin_operator op{};
  op.size = sizeof(op);
  op.name = name;
  op.summary = "x: [*] -> [*]";
  op.operands = kOperands;
  op.num_operands = 1;
  op.infer = infer;
  op.row_independent = 1;
  op.capturable = 1;
  return op;
}

tessera_plugin_kernel make_kernel(const char* op) {
  tessera_plugin_kernel kernel{};
  kernel.size = sizeof(kernel);
  kernel.op = op;
  kernel.device = "cpu";
  kernel.name = "fault_kernel";
  kernel.bind = bind;
  kernel.enqueue = enqueue;
  kernel.release = release;
  return kernel;
}

tessera_plugin_operator op = make_operator("fault_op");
tessera_plugin_kernel kernel = make_kernel("fault_op");

}  // namespace

extern "C" TESSERA_PLUGIN_EXPORT int fault_live() { return live; }
extern "C" TESSERA_PLUGIN_EXPORT void fault_fail_launch(int n) { failing = n; }

#ifndef FAULT_NO_REGISTER
extern "C" int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
#if defined(FAULT_RETURNS_ERROR)
  return tessera_plugin_fail(error, TESSERA_PLUGIN_NOT_FOUND, "the moon is not full");
#elif defined(FAULT_UNDEFINED)
  return nobody_has_this();
#elif defined(FAULT_STRANGE_CODE)
  return 77;
#elif defined(FAULT_THROWS)
  throw std::runtime_error("out of the blue");
#elif defined(FAULT_SLOW)
  std::this_thread::sleep_for(std::chrono::minutes(10));
#elif defined(FAULT_CRASH)
  std::raise(SIGSEGV);
#elif defined(FAULT_EXIT)
  std::_Exit(3);
#elif defined(FAULT_NULL_TABLE)
  return host->add_operator(host, nullptr, error);
#elif defined(FAULT_SHORT_TABLE)
  op.size = sizeof(size_t);
#elif defined(FAULT_LATER_TABLE)
  struct Later {
    tessera_plugin_operator now;
    void* new_member;
  };
  static const Later later{make_operator("fault_op"), &live};
  static Later table = later;
  table.now.size = sizeof(Later);
  return host->add_operator(host, &table.now, error);
#elif defined(FAULT_NO_RULE)
  op.infer = nullptr;
#elif defined(FAULT_NO_BIND)
  kernel.bind = nullptr;
#elif defined(FAULT_TAKEN_OP)
  op.name = "silu_mul";
#elif defined(FAULT_BAD_NAME)
  op.name = "no word";
#elif defined(FAULT_UNKNOWN_DEVICE)
  kernel.device = "abacus";
#elif defined(FAULT_UNKNOWN_OP)
  kernel.op = "nobodys_op";
#elif defined(FAULT_NEEDS_PLANNER)
  op.row_independent = 0;
#elif defined(FAULT_NO_SPLIT)
  op.capturable = 0;
#elif defined(FAULT_BAD_NATIVE_FORM)
  static tessera_plugin_type example{};
  example.dtype = TESSERA_PLUGIN_F32;
  op.native_form = "%y = sillu(%x) return %y";
  op.example = &example;
#elif defined(FAULT_IGNORES_ERROR)
  op.infer = nullptr;
  (void)host->add_operator(host, &op, error);
  return TESSERA_PLUGIN_OK;
#endif
#ifndef FAULT_RIVAL_KERNEL
  CHECK_CALL(host->add_operator(host, &op, error));
#endif
  CHECK_CALL(host->add_kernel(host, &kernel, error));
#if defined(FAULT_DOUBLE_OP)
  CHECK_CALL(host->add_operator(host, &op, error));
#elif defined(FAULT_DOUBLE_KERNEL)
  CHECK_CALL(host->add_kernel(host, &kernel, error));
#endif
  return TESSERA_PLUGIN_OK;
}
#endif
