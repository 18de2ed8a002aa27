/* The C interface of Tessera's plugins, which add operators, kernels, compilers, passes, model families, chat formats
 * and devices.
 *
 *   #include <tessera_plugin.h>
 *   TESSERA_PLUGIN("my_ops", "1.0")
 *   int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error) {
 *     int32_t code = host->add_operator(host, &my_operator, error);
 *     return code != TESSERA_PLUGIN_OK ? code : host->add_kernel(host, &my_kernel_on_cpu, error);
 *   }
 *
 *   tessera serve --plugin ./libmy_ops.so …
 *
 * docs/extending.md is the guide, examples/operator the smallest whole plugin.
 *
 * Tables.    A struct that begins with `size` is a table: set `size` to its sizeof. Later versions only append members;
 *            members beyond a smaller `size` count as null or 0. A function or pointer may be null only if its comment
 *            says so. All other structs are plain values, which never change within an ABI version.
 * Errors.    A function returns TESSERA_PLUGIN_OK, or another code with a message (tessera_plugin_fail) that says what
 *            is wrong, which value, and what is accepted. The host puts more text before the message: the plugin's
 *            file while the plugin loads, and later the names of operator and kernel, compiler, pass, family or chat
 *            format.
 *            Nothing may throw or longjmp out of the plugin. If a C++ exception leaves it, the call counts as failed.
 * Lifetime.  Tables, names and objects behind `self` must stay valid while the library is loaded: make them static.
 *            Arguments of a call are valid during the call, unless the comment says otherwise. The library stays loaded
 *            until the engine that loaded it is closed. Before the host loads the library into its own process,
 *            the host loads the library once in a child process, to see whether loading works.
 * Threads.   tessera_plugin_register runs on one thread, alone. Afterwards several threads may call every function with
 *            different objects. One thread at a time uses an object that a function made (bound kernel, stream,
 *            parser …). A device is the exception: several threads may call its functions at once.
 */
#ifndef TESSERA_PLUGIN_H
#define TESSERA_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_PLUGIN_ABI 1
#define TESSERA_PLUGIN_MAX_RANK 5
#define TESSERA_PLUGIN_MAX_RESULTS 8
#define TESSERA_PLUGIN_NUM_SYMBOLS 9
#define TESSERA_PLUGIN_ALIGNMENT 256 /* bytes; alignment of every address that a device hands out */

/* ---- Errors and texts ------------------------------------------------------------------------------------------- */

enum {
  TESSERA_PLUGIN_OK = 0,
  TESSERA_PLUGIN_INVALID_ARGUMENT = 1, /* the caller's input is wrong */
  TESSERA_PLUGIN_NOT_FOUND = 2,
  TESSERA_PLUGIN_FAILED_PRECONDITION = 3, /* right input at the wrong time */
  TESSERA_PLUGIN_RESOURCE_EXHAUSTED = 4,  /* not enough memory; a smaller request would work */
  TESSERA_PLUGIN_UNIMPLEMENTED = 5,       /* valid, but not supported */
  TESSERA_PLUGIN_DEVICE_LOST = 6,         /* only a restart of the process helps */
  TESSERA_PLUGIN_DATA_LOSS = 7,           /* stored data is corrupt */
  TESSERA_PLUGIN_INTERNAL = 9             /* a defect */
};

/* The host owns this object. The message is cut to `message_bytes`, including its final 0. */
typedef struct tessera_plugin_error {
  size_t size;
  char* message;
  size_t message_bytes;
} tessera_plugin_error;

/* Stores `message` and returns `code`: return tessera_plugin_fail(error, TESSERA_PLUGIN_INVALID_ARGUMENT, "…"); */
static inline int32_t tessera_plugin_fail(tessera_plugin_error* error, int32_t code, const char* message) {
  if (error != NULL && error->message_bytes > 0) {
    size_t length = strlen(message);
    if (length >= error->message_bytes) length = error->message_bytes - 1;
    memcpy(error->message, message, length);
    error->message[length] = 0;
  }
  return code;
}

/* Receives a text in pieces: out->append(out, data, bytes). */
typedef struct tessera_plugin_text {
  size_t size;
  void (*append)(const struct tessera_plugin_text* text, const char* data, size_t bytes);
  void* host;
} tessera_plugin_text;

/* ---- Types, tensors and nodes ------------------------------------------------------------------------------------ */

enum {
  TESSERA_PLUGIN_F32 = 0,
  TESSERA_PLUGIN_F16 = 1,
  TESSERA_PLUGIN_BF16 = 2,
  TESSERA_PLUGIN_I32 = 3,
  TESSERA_PLUGIN_I64 = 4,
  TESSERA_PLUGIN_U8 = 5,
  TESSERA_PLUGIN_F8E4M3 = 6 /* only for caches, whose operators then take two scales */
};

/* The symbols for sizes that vary: tokens (T), requests (B), tokens of the longest query (Q), wanted rows (R), patches
 * (S), and pages of the four cache groups (P to P3). In a decode B is the number of rows, and Q is 1. */
enum {
  TESSERA_PLUGIN_T = 0,
  TESSERA_PLUGIN_B = 1,
  TESSERA_PLUGIN_Q = 2,
  TESSERA_PLUGIN_R = 3,
  TESSERA_PLUGIN_S = 4,
  TESSERA_PLUGIN_P = 5,
  TESSERA_PLUGIN_P1 = 6,
  TESSERA_PLUGIN_P2 = 7,
  TESSERA_PLUGIN_P3 = 8
};

/* A dimension: (constant + Σ coefficients[s] · symbol s) / divisor. For a plain number the coefficients are 0 and the
 * divisor is 1. */
typedef struct tessera_plugin_dim {
  int64_t constant;
  int64_t coefficients[TESSERA_PLUGIN_NUM_SYMBOLS];
  int64_t divisor; /* > 0; the division is exact */
} tessera_plugin_dim;

/* The type of a value in a graph. */
typedef struct tessera_plugin_type {
  int32_t dtype;
  int32_t rank;
  tessera_plugin_dim dims[TESSERA_PLUGIN_MAX_RANK]; /* outermost first, row-major */
} tessera_plugin_type;

/* An address in device memory: the memory's handle, and the bytes from its start. On "cpu", "cuda" and every other
 * device with pointers, the handle is the address of the first byte, so handle + offset is a pointer. */
typedef struct tessera_plugin_address {
  void* handle; /* null: no address */
  size_t offset;
} tessera_plugin_address;

/* A value in device memory, row-major and contiguous. */
typedef struct tessera_plugin_tensor {
  tessera_plugin_address data;
  int32_t dtype;
  int32_t rank;
  int64_t dims[TESSERA_PLUGIN_MAX_RANK];
  int32_t is_weight; /* 1: a weight, which no kernel writes */
} tessera_plugin_tensor;

enum {
  TESSERA_PLUGIN_BOOL = 0,
  TESSERA_PLUGIN_INT = 1,
  TESSERA_PLUGIN_DOUBLE = 2,
  TESSERA_PLUGIN_STRING = 3,
  TESSERA_PLUGIN_INTS = 4
};

typedef struct tessera_plugin_attribute {
  const char* name;
  int32_t kind;
  int64_t integer;     /* BOOL: 0 or 1; INT */
  double number;       /* DOUBLE */
  const char* string;  /* STRING */
  const int64_t* ints; /* INTS */
  size_t num_ints;
} tessera_plugin_attribute;

/* One call of an operator in a graph. */
typedef struct tessera_plugin_node {
  size_t size;
  const char* op;
  const tessera_plugin_attribute* attributes; /* the attributes that the node has, sorted by name */
  size_t num_attributes;
  const tessera_plugin_type* operands; /* in declaration order; optional ones at the end may be absent */
  size_t num_operands;
} tessera_plugin_node;

/* Returns the node's attribute with this name, or null if it has none. */
static inline const tessera_plugin_attribute* tessera_plugin_find_attribute(const tessera_plugin_node* node,
                                                                            const char* name) {
  for (size_t i = 0; i < node->num_attributes; ++i)
    if (strcmp(node->attributes[i].name, name) == 0) return &node->attributes[i];
  return NULL;
}

/* ---- Operators ----------------------------------------------------------------------------------------------------
 */

typedef struct tessera_plugin_operand {
  const char* name;
  int32_t mutated;  /* the operator writes to it; graphs print "mut %x" */
  int32_t optional; /* it and all operands after it may be left out */
} tessera_plugin_operand;

typedef struct tessera_plugin_attribute_decl {
  const char* name;
  int32_t kind;
  int32_t required;
} tessera_plugin_attribute_decl;

/* An operator's declaration: all that a graph needs to know. Kernels are added for each device
 * (tessera_plugin_kernel). */
typedef struct tessera_plugin_operator {
  size_t size;
  void* self;
  const char* name;    /* a unique word */
  const char* summary; /* one line with the formula and its shapes */
  const tessera_plugin_operand* operands;
  size_t num_operands;
  const tessera_plugin_attribute_decl* attributes; /* may be null if there are none */
  size_t num_attributes;
  /* Computes the result types from the operand types. Returns an error if the kernels cannot take these operand types.
   * Pure. Debug mode compares every bound kernel's results with the result types. */
  int32_t (*infer)(void* self, const tessera_plugin_node* node, tessera_plugin_type* results, size_t* num_results,
                   tessera_plugin_error* error);
  /* 1 if a row of the results depends only on the same row of the operands and on weights, so that padding rows change
   * nothing. If it is 0, the operator's kernels need a planner, whose plans tell them which rows are not padding. */
  int32_t row_independent;
  int32_t capturable;       /* 0: never part of a recorded graph; forwards are always cut at it */
  int32_t split_by_default; /* forwards are cut at it unless --cuda-graph-split-ops names others */
  /* The same computation by simpler operators, written like the inside of a graph's text. Operands have their declared
   * names, and "$name" stands for an attribute's value. It may use the engine's operators and operators that this
   * plugin added before. Null: there is no such form.
   *   "%s = silu(%gate)  %y = mul(%s, %up)  return %y"
   * A native form needs the example below: types of the operands, and attributes. The host checks the form on this
   * example. */
  const char* native_form;
  const tessera_plugin_type* example; /* [num_operands] */
  const tessera_plugin_attribute* example_attributes;
  size_t num_example_attributes;
  /* 1: a pass "fuse_<name>", which runs before the engine's fuse_native_forms, replaces each native form in a graph by
   * the operator. The operator's attributes are copied from the replaced nodes' attributes of the same names. */
  int32_t fuses;
} tessera_plugin_operator;

/* ---- Plans: what the host decides before every forward --------------------------------------------------------------
 */

typedef struct tessera_plugin_limits {
  size_t size;
  int64_t max_requests; /* requests in a forward; each drafted token counts as one more */
  int64_t max_tokens; /* query rows in a forward, padding included */
  int64_t max_pages_per_request;
  int64_t page_size;     /* tokens */
  int64_t num_pages;     /* pages of the plan's cache group; page ids are below it; 0 in tessera_plugin_call */
  int32_t deterministic; /* a row's bits must not depend on other rows, or on how a request is cut into forwards */
} tessera_plugin_limits;

typedef struct tessera_plugin_page_table {
  const int32_t* pages; /* the page of position p is pages[p / page_size] */
  size_t num_pages;
  int64_t first_held; /* entries before this one are page 0, because no row attends to them any more */
} tessera_plugin_page_table;

/* A ragged batch. The tokens of a request are adjacent. */
typedef struct tessera_plugin_batch {
  size_t size;
  /* 1: row t is the only row of request t. With speculative decoding a request and each of its drafts are requests
   * here. They share pages, and a layer stores the keys of all rows before its attention reads them. */
  int32_t is_decode;
  int64_t padded_requests; /* with is_decode: the rows of the graph that will run, at least num_requests */
  size_t num_tokens;
  const int32_t* positions; /* [num_tokens]: the position of each token in its request */
  size_t num_requests;
  const int32_t* query_lens;                    /* [num_requests]: tokens of each request in this forward */
  const int32_t* kv_lens;                       /* [num_requests]: tokens of each request in the cache afterwards */
  const int32_t* slots;                         /* [num_tokens]: where each token's keys and values go */
  const tessera_plugin_page_table* page_tables; /* [num_requests] */
} tessera_plugin_batch;

/* Makes plans. A plan holds what a kernel must know about the batch beyond its operands. It is written to device memory
 * before every forward, at a fixed address, so that a recorded graph serves any batch. There is one plan for each
 * operator and cache group (the nodes' attribute "group"; 0 if they have none). */
typedef struct tessera_plugin_planner {
  size_t size;
  void* self;
  /* Computes the bytes of device memory that plan() may fill, for any batch within the limits. `node` is the first node
   * of the group. */
  int32_t (*bytes)(void* self, const tessera_plugin_node* node, const tessera_plugin_limits* limits, size_t* bytes,
                   tessera_plugin_error* error);
  /* Makes the plan for the batch: writes it to `data`, and its size to *written. The host copies only this many bytes
   * to the device. `data` is host memory of bytes() bytes, which still contains what earlier batches wrote. Allocates
   * nothing. */
  int32_t (*plan)(void* self, const tessera_plugin_node* node, const tessera_plugin_limits* limits,
                  const tessera_plugin_batch* batch, void* data, size_t* written, tessera_plugin_error* error);
} tessera_plugin_planner;

/* ---- Kernels
 * --------------------------------------------------------------------------------------------------------- */

/* The node and the set of sizes to which a kernel is bound. */
typedef struct tessera_plugin_call {
  size_t size;
  const tessera_plugin_node* node;
  const tessera_plugin_tensor* operands;
  size_t num_operands;
  const tessera_plugin_tensor* results;
  size_t num_results;
  tessera_plugin_address workspace; /* scratch memory of workspace_bytes() bytes, shared by all kernels of the stream */
  tessera_plugin_address plan;      /* its handle is null if the kernel has no planner, and in workspace_bytes() */
  const tessera_plugin_limits* limits;
  int32_t is_decode; /* batches have one row for each request */
  void* device;      /* the object that a plugin's device made in open(); null on other devices */
} tessera_plugin_call;

/* A kernel: implements an operator on one type of device. It is bound once for each size, and then only enqueued. */
typedef struct tessera_plugin_kernel {
  size_t size;
  void* self;
  const char* op;     /* an operator of a plugin or of the engine; this kernel replaces the engine's on the device */
  const char* device; /* "cpu", "cuda", or a plugin's device type */
  const char* name;   /* the implementation's name in explain and errors: "my_gemm" */
  /* Chooses grid, algorithm and addresses. The addresses stay valid as long as the bound kernel exists. */
  int32_t (*bind)(void* self, const tessera_plugin_call* call, void** bound, tessera_plugin_error* error);
  /* Puts the kernel on `stream`, asynchronously: allocates nothing, synchronises nothing and makes the same launches
   * each time, eagerly and while the stream records. `stream`:
   *   "cpu"       null; the call itself computes, and the host repeats the call for every replay of a graph
   *   "cuda"      cudaStream_t
   *   a plugin's  the object that its create_stream() made */
  int32_t (*enqueue)(const void* bound, void* stream, tessera_plugin_error* error);
  void (*release)(void* bound); /* null: there is nothing to free */
  /* Computes the bytes of scratch memory that the bound kernel needs; the addresses in `call` are null. Null: no
   * scratch memory. */
  int32_t (*workspace_bytes)(void* self, const tessera_plugin_call* call, size_t* bytes, tessera_plugin_error* error);
  const tessera_plugin_planner* planner; /* null: the kernel reads nothing but its operands */
  /* Returns a number for the kernel or algorithm that bind() chose. The host runs the bound kernel of each number once
   * before any capture. Null: there is only one. */
  uint64_t (*variant)(const void* bound);
} tessera_plugin_kernel;

/* ---- Devices
 * --------------------------------------------------------------------------------------------------------- */

typedef struct tessera_plugin_properties {
  size_t size;
  const char* name;         /* the device's name, for messages and logs; valid until close() */
  int64_t memory_bytes;     /* the most memory that this process may use */
  int32_t threads;          /* number of compute units, or of worker threads that run a kernel */
  int32_t on_host;          /* kernels run on the host's cores, and enqueue() returns when they have ended */
  int32_t has_pointers;     /* handle + offset is an address that kernels can use; 0: handles only name buffers */
  int32_t has_bf16;         /* matrix units accept bfloat16 */
  int32_t arenas_grow;      /* 0: create_arena() takes all memory at once, and grow_arena() is not used */
  int64_t block_bytes;      /* arenas grow by multiples of it; at least 1 */
  int64_t graph_bytes;      /* memory of a recorded graph; 0: not known */
  int64_t graph_node_bytes; /* memory of each kernel, copy or fill in a graph; 0: not known */
  /* The reason why this device records no graphs although its table has the functions; valid until close(). Its pieces
   * run operator by operator, and `explain` shows the reason. Null: it records graphs. */
  const char* why_no_graphs;
} tessera_plugin_properties;

/* The bound operators of a part of a forward, in order. tessera_plugin_device::capture() makes a graph of them. */
typedef struct tessera_plugin_steps {
  size_t size;
  size_t count;
  /* Enqueues step i on the capturing stream. */
  int32_t (*enqueue)(const struct tessera_plugin_steps* steps, size_t i, tessera_plugin_error* error);
  void* host;
} tessera_plugin_steps;

/* A type of device. The host guarantees the following to these functions. There is one recording at a time. While a
 * recording is open, the recording thread does not allocate, grow arenas, upload, download, synchronise or make
 * streams. This thread may still free memory, and the graph is then dropped. Objects are freed before what they use:
 * graphs, then events and streams, memory, the device. Free functions get each object once, never null, and cannot
 * fail. Sizes are above 0.
 *
 * New memory may have any contents. Copies, fills and kernels of one stream run in order. */
typedef struct tessera_plugin_device {
  size_t size;
  void* self;
  const char* type;     /* unique: "opencl"; --device names it */
  int32_t has_ordinals; /* 1: a device's name may have an ordinal, as in "opencl:1" */

  /* Opens the device with this ordinal. Returns NOT_FOUND, with the reason, if this machine has no such device. */
  int32_t (*open)(void* self, int32_t ordinal, void** device, tessera_plugin_properties* properties,
                  tessera_plugin_error* error);
  void (*close)(void* device);
  int64_t (*available_bytes)(void* device); /* the bytes that allocate() could still give */

  /* Allocates memory. `name` is for messages. The handle stays valid until free_memory(). It is aligned to
   * TESSERA_PLUGIN_ALIGNMENT if the device has pointers, and differs from the handles of all other live memory. Returns
   * RESOURCE_EXHAUSTED if there is not enough memory. */
  int32_t (*allocate)(void* device, size_t bytes, const char* name, void** handle, tessera_plugin_error* error);
  void (*free_memory)(void* device, void* handle);
  /* Allocates host memory from which copies are fastest. upload() and download() need not wait for the stream if they
   * use such memory. Null: the host's own allocator is used. */
  int32_t (*allocate_host)(void* device, size_t bytes, const char* name, void** data, tessera_plugin_error* error);
  void (*free_host)(void* device, void* data);
  /* Reserves one range of `reserve_bytes` that never moves; *handle is the handle of its memory. With arenas_grow,
   * nothing is usable until grow_arena(), which makes the first `bytes` bytes usable and is called with growing
   * multiples of block_bytes. */
  int32_t (*create_arena)(void* device, size_t reserve_bytes, const char* name, void** arena, void** handle,
                          tessera_plugin_error* error);
  int32_t (*grow_arena)(void* arena, size_t bytes, tessera_plugin_error* error);
  void (*free_arena)(void* arena);

  int32_t (*create_stream)(void* device, const char* name, void** stream, tessera_plugin_error* error);
  void (*free_stream)(void* stream); /* called after the stream's work has ended */
  /* upload() has read `data` when it returns, unless `data` is memory of allocate_host(). download() has filled `data`
   * once synchronize(), or an event recorded after it, has passed. Memory of allocate_host() is read and written while
   * the stream runs. */
  int32_t (*upload)(void* stream, tessera_plugin_address to, const void* data, size_t bytes,
                    tessera_plugin_error* error);
  int32_t (*download)(void* stream, void* data, tessera_plugin_address from, size_t bytes, tessera_plugin_error* error);
  /* Enqueue a copy or a fill. A stream that records keeps both in the recording, as it keeps kernels. The two ranges of
   * a copy do not overlap. */
  int32_t (*copy)(void* stream, tessera_plugin_address to, tessera_plugin_address from, size_t bytes,
                  tessera_plugin_error* error);
  int32_t (*fill)(void* stream, tessera_plugin_address to, uint8_t value, size_t bytes, tessera_plugin_error* error);
  int32_t (*synchronize)(void* stream, tessera_plugin_error* error);

  /* If `timed`, the event also records the time. record_event() replaces an earlier recording. */
  int32_t (*create_event)(void* device, int32_t timed, void** event, tessera_plugin_error* error);
  void (*free_event)(void* event);
  int32_t (*record_event)(void* stream, void* event, tessera_plugin_error* error);
  /* Make the stream, or the host, wait for an event that was recorded before. */
  int32_t (*wait_event)(void* stream, void* event, tessera_plugin_error* error);
  int32_t (*synchronize_event)(void* event, tessera_plugin_error* error);
  /* Computes the device's time from `earlier` to `later`, which are timed and recorded. Returns FAILED_PRECONDITION
   * if one of them has not passed. */
  int32_t (*event_milliseconds)(void* earlier, void* later, double* milliseconds, tessera_plugin_error* error);

  /* Recorded graphs: a device has all five functions or none. Without them, pieces run operator by operator, and
   * `explain` says so. After begin_recording(), the stream keeps its copies, fills and kernels with their addresses and
   * does not run them. end_recording() makes a graph of them, even if there are none. The stream stops recording at
   * end_recording(), also if that fails, and at abandon_recording(). *nodes counts kernels, copies and fills; *bytes is
   * the graph's memory, 0 if unknown. */
  int32_t (*begin_recording)(void* stream, const char* what, tessera_plugin_error* error);
  int32_t (*end_recording)(void* stream, void** graph, int64_t* nodes, int64_t* bytes, tessera_plugin_error* error);
  void (*abandon_recording)(void* stream);
  /* Launches the graph on any stream of the device that does not record. It may be launched any number of times, even
   * before earlier launches have ended. */
  int32_t (*launch_graph)(void* graph, void* stream, tessera_plugin_error* error);
  void (*free_graph)(void* graph);

  /* Makes a graph of a piece in the device's own way, instead of recording its stream. A launch of the graph must do
   * what enqueueing all steps does. Nothing else runs meanwhile. Null: pieces are recorded. */
  int32_t (*capture)(void* device, const tessera_plugin_steps* steps, void* stream, const char* what, void** graph,
                     int64_t* nodes, int64_t* bytes, tessera_plugin_error* error);

  /* Writes the versions of driver and libraries, on which measured times depend. Null: there are none. */
  void (*versions)(void* self, const tessera_plugin_text* out);
} tessera_plugin_device;

/* ---- Compilers
 * --------------------------------------------------------------------------------------------------------- */

typedef struct tessera_plugin_value {
  const char* name;
  tessera_plugin_type type;
  int32_t is_result; /* 0: from outside the piece (input, weight, state) */
  int32_t is_output; /* read after the piece */
} tessera_plugin_value;

typedef struct tessera_plugin_piece_node {
  const char* op;
  const tessera_plugin_attribute* attributes;
  size_t num_attributes;
  const int32_t* operands; /* indices into values */
  size_t num_operands;
  const int32_t* mutates; /* [num_operands]: 1 if the node writes the operand */
  const int32_t* results;
  size_t num_results;
} tessera_plugin_piece_node;

/* A part of a forward, with symbols for sizes. One program serves all sizes, and all pieces that differ only in
 * names. */
typedef struct tessera_plugin_piece {
  size_t size;
  const char* text; /* the graph as text, which parses back to the same graph */
  const tessera_plugin_value* values;
  size_t num_values;
  const tessera_plugin_piece_node* nodes; /* in execution order */
  size_t num_nodes;
  const char* device;    /* the device's type */
  int32_t deterministic; /* a row's bits must not depend on the batch */
} tessera_plugin_piece;

/* A program under construction; its instructions are in execution order. */
typedef struct tessera_plugin_program {
  size_t size;
  /* Adds a value of the compiler's own. *id is its index, which follows the indices of the piece's values. */
  int32_t (*add_value)(const struct tessera_plugin_program* program, const char* name, const tessera_plugin_type* type,
                       int32_t* id, tessera_plugin_error* error);
  /* Adds the node unchanged; the device's registered kernel runs it. */
  int32_t (*keep_node)(const struct tessera_plugin_program* program, size_t node, tessera_plugin_error* error);
  /* Adds a kernel of the compiler's own for any part of the work. `node` has indices of values as operands and results;
   * `op` and attributes are whatever the kernel reads. `kernel` has no planner. `listing` says what the kernel
   * computes, for explain; it may be null. */
  int32_t (*add_instruction)(const struct tessera_plugin_program* program, const tessera_plugin_piece_node* node,
                             const tessera_plugin_kernel* kernel, const char* listing, tessera_plugin_error* error);
  void (*note)(const struct tessera_plugin_program* program, const char* text); /* a note for explain */
  void* host;
} tessera_plugin_program;

typedef struct tessera_plugin_compiler {
  size_t size;
  void* self;
  const char* name; /* its name in --piecewise-cuda-graph-compiler */
  /* Writes everything on which the compiler's programs depend besides piece and device: its version and options.
   * Equal texts mean equal programs, and handles are stored under this text for later processes. */
  void (*hash)(void* self, const tessera_plugin_text* out);
  /* Compiles the piece. `handle` is JSON from which load() can make the same program again. If nothing is written to
   * it, the program is not stored. */
  int32_t (*compile)(void* self, const tessera_plugin_piece* piece, const tessera_plugin_program* program,
                     const tessera_plugin_text* handle, tessera_plugin_error* error);
  /* Makes a program from a handle. The handle is from disk, so it may contain anything. After an error the piece is
   * compiled again. Null: handles are not stored. */
  int32_t (*load)(void* self, const tessera_plugin_piece* piece, const char* handle,
                  const tessera_plugin_program* program, tessera_plugin_error* error);
} tessera_plugin_compiler;

/* ---- Passes and families
 * ------------------------------------------------------------------------------------------------ */

/* A graph pass. Passes run after the engine's own, in the order in which they were added. Inputs, weights, states,
 * outputs and their types must stay as they are. The result is verified. */
typedef struct tessera_plugin_pass {
  size_t size;
  void* self;
  const char* name; /* the name by which it can be switched off */
  const char* summary;
  int64_t version; /* raise it whenever the pass's result for some graph changes */
  /* Reads and writes graph text. Pure. If it writes nothing, the graph stays unchanged. */
  int32_t (*run)(void* self, const char* graph, const tessera_plugin_text* out, tessera_plugin_error* error);
} tessera_plugin_pass;

/* The model for which a body's graph is written. */
typedef struct tessera_plugin_model {
  size_t size;
  const char* config_json; /* the result of config(); the members of a text_config are also at the top level */
  int32_t dtype;           /* the type of activations, and of the matrices by which they are multiplied */
  int32_t kv_cache_dtype;  /* with F8E4M3, operators on keys and values take scales: k_scale and v_scale, f32[1] */
  int64_t page_size;       /* tokens: the second dimension of the states for keys and values */
  int64_t max_requests;    /* the size of input last_ids: i32[max_requests] */
  int64_t max_embeddings;  /* the size of input embeddings: dtype[max_embeddings, hidden size] */
  /* The number of the device that the graph is for, and the number of devices that share every layer. With `ranks`
   * above 1, the graph computes the device's part of the heads and of the MLP, and all_reduce adds the parts. Refuse
   * `ranks` above 1 if the graph computes whole layers. */
  int64_t rank;
  int64_t ranks;
  /* The config's rotary embedding: a constant f32[num_inv_freq], and the attribute "scale" of rotary_table. */
  const float* inv_freq;
  size_t num_inv_freq;
  double rope_scale;
} tessera_plugin_model;

/* A part of a weight: a tensor of the checkpoint (float32, float16 or bfloat16), or a slice of one. */
typedef struct tessera_plugin_part {
  size_t size;
  const char* tensor;
  const int64_t* dims; /* [rank], of the whole tensor; if it is transposed, in the graph's order */
  int32_t rank;        /* 1 to TESSERA_PLUGIN_MAX_RANK */
  int32_t transposed;  /* the checkpoint stores the transpose of this matrix */
  int64_t slice_dim;   /* the slice has the indices slice_begin … slice_begin + slice_size - 1 of this dimension */
  int64_t slice_begin;
  int64_t slice_size; /* 0: the whole tensor */
} tessera_plugin_part;

/* Declares what the weights of a graph are made of. A weight without a declaration is the tensor of the same name. */
typedef struct tessera_plugin_weights {
  size_t size;
  /* Appends the rows of a part to the weight's rows so far. For example, q, k and v may form one matrix. */
  int32_t (*add_part)(const struct tessera_plugin_weights* weights, const char* weight, const tessera_plugin_part* part,
                      tessera_plugin_error* error);
  /* Sets a weight to values that the config determines, instead of parts. The values are copied. */
  int32_t (*add_constant)(const struct tessera_plugin_weights* weights, const char* weight, const float* values,
                          size_t count, tessera_plugin_error* error);
  void* host;
} tessera_plugin_weights;

/* A model family, described by its difference from a known one (`base`), or by its own graph (`graph`). */
typedef struct tessera_plugin_family {
  size_t size;
  void* self;
  const char* architecture; /* the name in config.json: "MyForCausalLM" */
  const char* base;         /* the family whose layers it has: "LlamaForCausalLM"; null: graph() is set */
  /* Turns config.json into one with the fields that `base` reads. If it writes nothing, or is null, config.json stays
   * unchanged. With graph(), these are the fields of every family: vocab_size, hidden_size, intermediate_size,
   * num_hidden_layers, num_attention_heads, max_position_embeddings, and optionally num_key_value_heads, head_dim,
   * tie_word_embeddings, rms_norm_eps, torch_dtype or dtype, rope_theta and the other rotation fields (rope_scaling,
   * rope_parameters, partial_rotary_factor), and bos_, eos_ and pad_token_id. Each of them may also be in text_config.
   * quantization_config is refused. All other fields are graph()'s own. */
  int32_t (*config)(void* self, const char* config_json, const tessera_plugin_text* out, tessera_plugin_error* error);
  /* Turns the body's graph of `base` into this family's graph, as text, before any pass. Inputs, weights, states and
   * outputs keep their names and types. If it writes nothing, or is null, the graph stays unchanged. */
  int32_t (*body)(void* self, const char* graph, const tessera_plugin_text* out, tessera_plugin_error* error);
  /* Writes the checkpoint's name for the tensor that `base`, graph() or the head calls `name`. If it writes nothing, or
   * is null, the names are the same. */
  void (*tensor)(void* self, const char* name, const tessera_plugin_text* out);
  /* Writes the body as graph text, from tokens to hidden states, before any pass, and declares its weights' parts.
   * The graph declares its cache groups, its states, and the inputs that the engine stages:
   *
   *   graph @body {
   *     group "full" paged layers [0, 1]
   *     input %input_ids: i32[T]              ids; if the row's input_rows is not -1:
   *     input %input_rows: i32[T]             last_ids[input_rows] instead (resolve_ids)
   *     input %last_ids: i32[256]             what the last step sampled: i32[max_requests]
   *     input %embedding_rows: i32[T]         row of embeddings in place of the id's, or -1 (embedding)
   *     input %embeddings: f32[2048, 64]      given by prompts: dtype[max_embeddings, hidden size]
   *     input %slots.full: i32[T]             "slots.<group>": where keys and values go; 0: padding
   *     input %positions: i32[T]
   *     weight %model.embed_tokens.weight: f32[512, 64]
   *     state %k_cache.0: f32[P, 16, 2, 16]   P for the first group, P1 for the second, …
   *     …
   *     return %y                             one value, dtype[T, hidden size]
   *   }
   *
   * The graph must declare and read the first five inputs. The engine adds the head: the matrix "lm_head.weight"
   * [vocab_size, hidden_size], or "model.embed_tokens.weight" with tie_word_embeddings. `tessera explain --graph body`
   * shows the graphs of the engine's families. Any thread may call the function, several times for one model, so it
   * must be pure. Null: the family is described by its base. */
  int32_t (*graph)(void* self, const tessera_plugin_model* model, const tessera_plugin_text* out,
                   const tessera_plugin_weights* weights, tessera_plugin_error* error);
} tessera_plugin_family;

/* ---- Chat formats
 * ----------------------------------------------------------------------------------------------------
 */

/* The kinds of pieces that a chat format finds in the text of a model's turn. */
enum {
  TESSERA_PLUGIN_CONTENT = 0,
  TESSERA_PLUGIN_REASONING = 1,
  TESSERA_PLUGIN_CALL = 2,     /* begins a call; the piece is the function's name */
  TESSERA_PLUGIN_ARGUMENTS = 3 /* arguments of the latest call; all of them together are the JSON text of an object */
};

/* The parts of the text that a parser is asked for. A format may have their sum. */
enum { TESSERA_PLUGIN_FINDS_REASONING = 1, TESSERA_PLUGIN_FINDS_CALLS = 2 };

/* The text for which a parser is made. It stays valid until the parser is released. */
typedef struct tessera_plugin_chat {
  size_t size;
  int32_t finds; /* FINDS_REASONING: content and reasoning are wanted; FINDS_CALLS: content, calls and arguments */
  /* Only with FINDS_REASONING. The host sets the next two members. It finds them with the format's reasoning_opening
   * and reasoning_closing. `reasoning` is 1 if the prompt ends inside the reasoning. `reasoned` is 1 if the text
   * continues a message that has ended its reasoning. At most one of them is 1. */
  int32_t reasoning;
  int32_t reasoned;
  /* With FINDS_CALLS: the request's functions, a JSON text [{"type": "function", "function": {"name": …, "parameters":
   * …}}, …]. Null: every name counts as a function's name. Text that looks like a call of another function is
   * content. */
  const char* tools;
  int32_t (*has_function)(const struct tessera_plugin_chat* chat, const char* name, size_t bytes);
  void* host;
} tessera_plugin_chat;

/* Receives pieces in the text's order, as soon as they are certain: pieces->add(pieces, TESSERA_PLUGIN_CONTENT, data,
 * bytes, error). Adjacent pieces of one kind are joined, but each begun call is a call of its own. If a call's
 * arguments stop being valid JSON, the host makes the rest of them content. add() returns INVALID_ARGUMENT for a kind
 * that the parser was not asked for, for arguments without a call, and for more bytes than the text so far can give. */
typedef struct tessera_plugin_pieces {
  size_t size;
  int32_t (*add)(const struct tessera_plugin_pieces* pieces, int32_t kind, const char* data, size_t bytes,
                 tessera_plugin_error* error);
  void* host;
} tessera_plugin_pieces;

/* A format in which models write tool calls, reasoning, or both. --tool-call-parser and --reasoning-parser choose it by
 * its name. If both are set, the content that the reasoning format returns is the text that the call format reads. An
 * error ends the request. So does a call of an unknown function, and a call that begins before the last call's
 * arguments are complete. */
typedef struct tessera_plugin_chat_format {
  size_t size;
  void* self;
  const char* name;
  int32_t finds;          /* FINDS_REASONING, FINDS_CALLS, or their sum */
  int32_t special_tokens; /* 1: marks are special tokens, so the text keeps special tokens; 0: the text has none */
  /* A text in this format. When the format is added, the host reads the text whole, and again cut at every byte. The
   * pieces must be the same, and contain reasoning or a whole call, as `finds` says. */
  const char* example;
  /* With FINDS_REASONING: the marks around reasoning in prompts. A template may write the opening mark at its end, and
   * a message that the model continues may have one or both marks; the chat's `reasoning` and `reasoned` tell which.
   * Spaces and line ends at the end of the prompt do not count. Null: no marks. */
  const char* reasoning_opening;
  const char* reasoning_closing;
  /* Makes a parser for one text. After an error there is no parser, and the host does not release what was stored in
   * *parser. */
  int32_t (*begin)(void* self, const tessera_plugin_chat* chat, void** parser, tessera_plugin_error* error);
  /* Reads the next part of the text, which may be cut anywhere; even a whole text comes in this way. Text that may
   * still turn out to be a mark is held back. The calling thread writes the answers of all requests, so the function
   * must be quick. */
  int32_t (*push)(void* parser, const char* text, size_t bytes, const tessera_plugin_pieces* pieces,
                  tessera_plugin_error* error);
  /* Ends the text, which may end anywhere, and adds the pieces for the text that was held back. */
  int32_t (*finish)(void* parser, const tessera_plugin_pieces* pieces, tessera_plugin_error* error);
  void (*release)(void* parser);
} tessera_plugin_chat_format;

/* ---- The host
 * ------------------------------------------------------------------------------------------------------------ */

/* Each add_ function returns INVALID_ARGUMENT for a name that is taken, a required pointer that is null, or a size that
 * no version of the table has. */
typedef struct tessera_plugin_host {
  size_t size;
  uint32_t abi;        /* TESSERA_PLUGIN_ABI of the engine */
  const char* version; /* the engine's version: "1.2.0" */
  int32_t (*add_operator)(const struct tessera_plugin_host* host, const tessera_plugin_operator* op,
                          tessera_plugin_error* error);
  int32_t (*add_kernel)(const struct tessera_plugin_host* host, const tessera_plugin_kernel* kernel,
                        tessera_plugin_error* error); /* add it after its operator and its device */
  int32_t (*add_device)(const struct tessera_plugin_host* host, const tessera_plugin_device* device,
                        tessera_plugin_error* error);
  int32_t (*add_compiler)(const struct tessera_plugin_host* host, const tessera_plugin_compiler* compiler,
                          tessera_plugin_error* error);
  int32_t (*add_pass)(const struct tessera_plugin_host* host, const tessera_plugin_pass* pass,
                      tessera_plugin_error* error);
  int32_t (*add_family)(const struct tessera_plugin_host* host, const tessera_plugin_family* family,
                        tessera_plugin_error* error);
  /* Writes a line to the log; level 0 is debug, 1 info, 2 warning, 3 error. This function and parallel_for() may be
   * kept for later: any thread may call them as long as the library is loaded. */
  void (*log)(int32_t level, const char* message);
  /* Calls body(context, begin, end) on the CPU's worker threads, with disjoint ranges that cover [0, count). There are
   * at most count / grain ranges, rounded up. It is for kernels on "cpu". */
  void (*parallel_for)(int64_t count, int64_t grain, void (*body)(void* context, int64_t begin, int64_t end),
                       void* context);
  void* registry; /* used by the host only */
  int32_t (*add_chat_format)(const struct tessera_plugin_host* host, const tessera_plugin_chat_format* format,
                             tessera_plugin_error* error);
} tessera_plugin_host;

/* A plugin's identity, which the plugin exports. The host reads it before any of the plugin's code runs. The plugin
 * also exports the function that adds its components. */
typedef struct tessera_plugin_info {
  size_t size;
  uint32_t abi;
  const char* name;
  const char* version;
} tessera_plugin_info;

#define TESSERA_PLUGIN_EXPORT __attribute__((visibility("default")))

#ifdef __cplusplus
#define TESSERA_PLUGIN_EXTERN extern "C" TESSERA_PLUGIN_EXPORT
#else
#define TESSERA_PLUGIN_EXTERN extern TESSERA_PLUGIN_EXPORT
#endif

/* Use it once in a plugin, at file scope. */
#define TESSERA_PLUGIN(plugin_name, plugin_version)                                                         \
  TESSERA_PLUGIN_EXTERN const tessera_plugin_info tessera_plugin;                                           \
  const tessera_plugin_info tessera_plugin = {sizeof(tessera_plugin_info), TESSERA_PLUGIN_ABI, plugin_name, \
                                              plugin_version};

/* The plugin defines this function. It must return within ten seconds. After an error, nothing that it added counts. */
TESSERA_PLUGIN_EXPORT int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error);

#ifdef __cplusplus
}
#endif
#endif
