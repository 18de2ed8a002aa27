/* Plugins of Tessera: operators, kernels, compilers, passes, model families, chat formats and devices from outside, in
 * C.
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
 * Tables.    A struct that begins with `size` is a table: set size to its sizeof. Later versions only append members;
 *            what a smaller size leaves out is null or 0. Null functions and pointers are allowed where it is said.
 *            All other structs are plain values, which never change within an ABI version.
 * Errors.    A function returns TESSERA_PLUGIN_OK or another code, and then says why (tessera_plugin_fail): what, which
 *            value, what is accepted. The host puts plugin, operator and device in front. Nothing may throw or longjmp
 *            out of the plugin. A C++ exception that does is an error of that call all the same.
 * Lifetime.  Tables, names and what `self` points to stay for the life of the library: make them static. What the host
 *            hands to a call is valid during it, unless it says otherwise. The library stays loaded as long as the
 * engine whose registry it added to; it is loaded once more, in a process of its own, to see whether that works.
 * Threads.   tessera_plugin_register runs on one thread, alone. Afterwards every function may be called from several
 *            threads with different objects. What was made by a function (bound kernel, stream, parser …) is used by
 *            one thread at a time; a device's functions from several.
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
#define TESSERA_PLUGIN_ALIGNMENT 256 /* of every address that a device hands out, bytes */

/* ---- Errors and texts ------------------------------------------------------------------------------------------- */

enum {
  TESSERA_PLUGIN_OK = 0,
  TESSERA_PLUGIN_INVALID_ARGUMENT = 1, /* the caller's input is wrong */
  TESSERA_PLUGIN_NOT_FOUND = 2,
  TESSERA_PLUGIN_FAILED_PRECONDITION = 3, /* right input at the wrong time */
  TESSERA_PLUGIN_RESOURCE_EXHAUSTED = 4,  /* memory: fewer or smaller would work */
  TESSERA_PLUGIN_UNIMPLEMENTED = 5,       /* valid, but not supported */
  TESSERA_PLUGIN_DEVICE_LOST = 6,         /* only a restart of the process helps */
  TESSERA_PLUGIN_DATA_LOSS = 7,           /* stored data is corrupt */
  TESSERA_PLUGIN_INTERNAL = 9             /* a defect */
};

/* The host's; the message is cut to `message_bytes`, its final 0 included. */
typedef struct tessera_plugin_error {
  size_t size;
  char* message;
  size_t message_bytes;
} tessera_plugin_error;

/* Leaves `message` and returns `code`: return tessera_plugin_fail(error, TESSERA_PLUGIN_INVALID_ARGUMENT, "…"); */
static inline int32_t tessera_plugin_fail(tessera_plugin_error* error, int32_t code, const char* message) {
  if (error != NULL && error->message_bytes > 0) {
    size_t length = strlen(message);
    if (length >= error->message_bytes) length = error->message_bytes - 1;
    memcpy(error->message, message, length);
    error->message[length] = 0;
  }
  return code;
}

/* Takes a text in pieces: out->append(out, data, bytes). */
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
  TESSERA_PLUGIN_F8E4M3 = 6 /* of caches alone, whose operators then take two scales */
};

/* Sizes that vary: tokens, requests, longest query, wanted rows, patches, pages of the four cache groups. */
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

/* (constant + Σ coefficients[s] · symbol s) / divisor. A number: constant, zeros and divisor 1. */
typedef struct tessera_plugin_dim {
  int64_t constant;
  int64_t coefficients[TESSERA_PLUGIN_NUM_SYMBOLS];
  int64_t divisor; /* > 0; the division is exact */
} tessera_plugin_dim;

/* Of a value in a graph. */
typedef struct tessera_plugin_type {
  int32_t dtype;
  int32_t rank;
  tessera_plugin_dim dims[TESSERA_PLUGIN_MAX_RANK]; /* outermost first, row-major */
} tessera_plugin_type;

/* Of device memory: the memory's handle, and bytes from its start. On "cpu", "cuda" and every device that has pointers
 * the handle is the address of the first byte, and handle + offset the place. */
typedef struct tessera_plugin_address {
  void* handle; /* null: none */
  size_t offset;
} tessera_plugin_address;

/* A value in device memory, row-major and contiguous. */
typedef struct tessera_plugin_tensor {
  tessera_plugin_address data;
  int32_t dtype;
  int32_t rank;
  int64_t dims[TESSERA_PLUGIN_MAX_RANK];
  int32_t is_weight; /* no kernel writes it */
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
  const tessera_plugin_attribute* attributes; /* those that the node has, by name */
  size_t num_attributes;
  const tessera_plugin_type* operands; /* in declaration order; optional ones at the end may be absent */
  size_t num_operands;
} tessera_plugin_node;

/* The node's attribute, or null where it has none of that name. */
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
  int32_t mutated;  /* the operator writes it; graphs print "mut %x" */
  int32_t optional; /* may be left out, and all after it */
} tessera_plugin_operand;

typedef struct tessera_plugin_attribute_decl {
  const char* name;
  int32_t kind;
  int32_t required;
} tessera_plugin_attribute_decl;

/* A declaration: all that a graph needs to know. Kernels are added for each device (tessera_plugin_kernel). */
typedef struct tessera_plugin_operator {
  size_t size;
  void* self;
  const char* name;    /* a word, unique */
  const char* summary; /* one line: the formula with shapes */
  const tessera_plugin_operand* operands;
  size_t num_operands;
  const tessera_plugin_attribute_decl* attributes; /* may be null where there are none */
  size_t num_attributes;
  /* Types of the results from those of the operands; an error where the kernels cannot take these. Pure. Debug mode
   * compares every bound kernel's results with it. */
  int32_t (*infer)(void* self, const tessera_plugin_node* node, tessera_plugin_type* results, size_t* num_results,
                   tessera_plugin_error* error);
  /* A row of the results depends on the same row of the operands, and on weights, alone: padding rows change nothing.
   * 0 needs kernels with a planner, which tells them which rows count. */
  int32_t row_independent;
  int32_t capturable;       /* 0: never in a graph; forwards are cut at it, whatever the split ops */
  int32_t split_by_default; /* forwards are cut at it unless --cuda-graph-split-ops names others */
  /* The same by simpler operators, as the inside of a graph's text: operands under their declared names, "$name" for
   * the value of an attribute. Of operators of the engine, and of those that this plugin added before. Null: there is
   * none.
   *   "%s = silu(%gate)  %y = mul(%s, %up)  return %y"
   * Types of operands, and attributes, for an example, by which it is checked: needed beside a native form. */
  const char* native_form;
  const tessera_plugin_type* example; /* [num_operands] */
  const tessera_plugin_attribute* example_attributes;
  size_t num_example_attributes;
  /* A pass "fuse_<name>", ahead of the engine's fuse_native_forms, puts the operator in the place of its native form,
   * wherever a graph has that. Attributes are those of the same name in the native form's nodes. */
  int32_t fuses;
} tessera_plugin_operator;

/* ---- Plans: what the host decides before every forward --------------------------------------------------------------
 */

typedef struct tessera_plugin_limits {
  size_t size;
  int64_t max_requests;
  int64_t max_tokens; /* query rows of a forward, padding included */
  int64_t max_pages_per_request;
  int64_t page_size;     /* tokens */
  int64_t num_pages;     /* of the plan's cache group: page ids are below it; 0 in a call's limits */
  int32_t deterministic; /* a row's bits must not depend on other rows, or on how a request is cut into forwards */
} tessera_plugin_limits;

typedef struct tessera_plugin_page_table {
  const int32_t* pages; /* position p lies in pages[p / page_size] */
  size_t num_pages;
  int64_t first_held; /* entries before it are page 0: no row sees them any more */
} tessera_plugin_page_table;

/* A ragged batch; the tokens of a request are neighbours. */
typedef struct tessera_plugin_batch {
  size_t size;
  int32_t is_decode;       /* row t is the only one of request t */
  int64_t padded_requests; /* is_decode: rows of the graph that will run, at least num_requests */
  size_t num_tokens;
  const int32_t* positions; /* [num_tokens], of each token in its request */
  size_t num_requests;
  const int32_t* query_lens;                    /* [num_requests]: tokens of each in this forward */
  const int32_t* kv_lens;                       /* [num_requests]: tokens of each in the cache after it */
  const int32_t* slots;                         /* [num_tokens]: where each token's keys and values go */
  const tessera_plugin_page_table* page_tables; /* [num_requests] */
} tessera_plugin_batch;

/* What a kernel must know of the batch beyond its operands is written to device memory before every forward, at an
 * address that stays, so that a recorded graph serves any batch. One plan for each operator and cache group (the nodes'
 * attribute "group", 0 where they have none). */
typedef struct tessera_plugin_planner {
  size_t size;
  void* self;
  /* Of device memory that plan() may fill, for any batch within the limits. `node`: the first one of the group. */
  int32_t (*bytes)(void* self, const tessera_plugin_node* node, const tessera_plugin_limits* limits, size_t* bytes,
                   tessera_plugin_error* error);
  /* Decides for the batch: writes `data` (host memory, of bytes(); what earlier batches wrote is still there), and how
   * many of its first bytes the device must get. Allocates nothing. */
  int32_t (*plan)(void* self, const tessera_plugin_node* node, const tessera_plugin_limits* limits,
                  const tessera_plugin_batch* batch, void* data, size_t* written, tessera_plugin_error* error);
} tessera_plugin_planner;

/* ---- Kernels
 * --------------------------------------------------------------------------------------------------------- */

/* What a kernel is bound to: one node, for one set of sizes. */
typedef struct tessera_plugin_call {
  size_t size;
  const tessera_plugin_node* node;
  const tessera_plugin_tensor* operands;
  size_t num_operands;
  const tessera_plugin_tensor* results;
  size_t num_results;
  tessera_plugin_address workspace; /* of workspace_bytes(), shared by all kernels of the stream */
  tessera_plugin_address plan; /* of the kernel's planner; no handle where it has none, and for workspace_bytes() */
  const tessera_plugin_limits* limits;
  int32_t is_decode; /* batches have one row for each request */
  void* device;      /* of a plugin's device, what its open() made; otherwise null */
} tessera_plugin_call;

/* An operator's implementation on a type of devices. Bound once for each size, then only enqueued. */
typedef struct tessera_plugin_kernel {
  size_t size;
  void* self;
  const char* op;     /* of a plugin, or the engine's own: then it takes the place of the device's kernel */
  const char* device; /* "cpu", "cuda", or a plugin's */
  const char* name;   /* of the implementation, shown by explain and errors: "my_gemm" */
  /* Decides grid, algorithm and addresses. Addresses stay as long as what is bound. */
  int32_t (*bind)(void* self, const tessera_plugin_call* call, void** bound, tessera_plugin_error* error);
  /* Puts the kernel on `stream`, asynchronously: allocates nothing, synchronises nothing and makes the same launches
   * each time, eagerly and while the stream records. `stream`:
   *   "cpu"       null; the call computes, on the host, and is made again for every replay of a graph
   *   "cuda"      cudaStream_t
   *   a plugin's  what its create_stream() made */
  int32_t (*enqueue)(const void* bound, void* stream, tessera_plugin_error* error);
  void (*release)(void* bound); /* null: nothing to free */
  /* Scratch that the bound kernel needs; addresses of the call are null. Null: none. */
  int32_t (*workspace_bytes)(void* self, const tessera_plugin_call* call, size_t* bytes, tessera_plugin_error* error);
  const tessera_plugin_planner* planner; /* null: reads nothing but its operands */
  /* Tells kernels or algorithms apart that bind() chose from: each runs once before any capture. Null: there is one. */
  uint64_t (*variant)(const void* bound);
} tessera_plugin_kernel;

/* ---- Devices
 * --------------------------------------------------------------------------------------------------------- */

typedef struct tessera_plugin_properties {
  size_t size;
  const char* name;         /* of this device, for messages and logs; valid until close() */
  int64_t memory_bytes;     /* what this process may use in all */
  int32_t threads;          /* its processors, or worker threads of a kernel */
  int32_t on_host;          /* kernels run on the host's cores and are over when enqueued */
  int32_t has_pointers;     /* handle + offset is an address that its kernels follow; 0: handles name buffers */
  int32_t has_bf16;         /* matrix units take bfloat16 */
  int32_t arenas_grow;      /* 0: create_arena() takes all memory at once, and there is no grow_arena() */
  int64_t block_bytes;      /* arenas grow by multiples of it; at least 1 */
  int64_t graph_bytes;      /* memory of a recorded graph, */
  int64_t graph_node_bytes; /* and of each kernel, copy or fill in it; 0: not known */
  /* Why this device records no graphs, beside a table that has the functions for it; valid until close(). Its pieces
   * run operator by operator, and `explain` says so with the reason. Null: it records. */
  const char* why_no_graphs;
} tessera_plugin_properties;

/* The operators of a part of a forward, bound, in order: what a device captures. */
typedef struct tessera_plugin_steps {
  size_t size;
  size_t count;
  /* Enqueues step i on the stream that is captured on. */
  int32_t (*enqueue)(const struct tessera_plugin_steps* steps, size_t i, tessera_plugin_error* error);
  void* host;
} tessera_plugin_steps;

/* A type of devices. The host keeps the contract around these functions: one recording at a time, and while it is open
 * its thread neither allocates, grows, stages, synchronises nor makes streams (memory may still be freed: the graph is
 * dropped then). Objects go before what they use: graphs, then events and streams, memory, the device. Free functions
 * get each object once, never null, and cannot fail. Sizes are above 0.
 *
 * Nothing may depend on the contents of new memory. Copies, fills and kernels of one stream run in order. */
typedef struct tessera_plugin_device {
  size_t size;
  void* self;
  const char* type;     /* unique: "opencl"; --device names it */
  int32_t has_ordinals; /* "opencl:1" is a name too */

  /* The ordinal-th device of the type. NOT_FOUND: this machine has none, with the reason. */
  int32_t (*open)(void* self, int32_t ordinal, void** device, tessera_plugin_properties* properties,
                  tessera_plugin_error* error);
  void (*close)(void* device);
  int64_t (*available_bytes)(void* device); /* that allocate() could still give */

  /* `name` is for messages. Handles stay, are aligned to TESSERA_PLUGIN_ALIGNMENT where the device has pointers, and
   * differ between memories that are alive. RESOURCE_EXHAUSTED where there is not enough. */
  int32_t (*allocate)(void* device, size_t bytes, const char* name, void** handle, tessera_plugin_error* error);
  void (*free_memory)(void* device, void* handle);
  /* Host memory that copies reach fastest: neither upload() nor download() waits for the stream then. Null: the host's
   * own allocator. */
  int32_t (*allocate_host)(void* device, size_t bytes, const char* name, void** data, tessera_plugin_error* error);
  void (*free_host)(void* device, void* data);
  /* One range of `reserve_bytes` that never moves. *handle is its memory's. arenas_grow: nothing is usable until
   * grow_arena(), which makes its first `bytes` usable and is called with growing multiples of block_bytes. */
  int32_t (*create_arena)(void* device, size_t reserve_bytes, const char* name, void** arena, void** handle,
                          tessera_plugin_error* error);
  int32_t (*grow_arena)(void* arena, size_t bytes, tessera_plugin_error* error);
  void (*free_arena)(void* arena);

  int32_t (*create_stream)(void* device, const char* name, void** stream, tessera_plugin_error* error);
  void (*free_stream)(void* stream); /* after its work has ended */
  /* upload() has read `data` when it returns; download() has filled it when synchronize(), or an event recorded after
   * it, has passed. Memory of allocate_host() is read and written while the stream runs. */
  int32_t (*upload)(void* stream, tessera_plugin_address to, const void* data, size_t bytes,
                    tessera_plugin_error* error);
  int32_t (*download)(void* stream, void* data, tessera_plugin_address from, size_t bytes, tessera_plugin_error* error);
  /* Recorded like kernels while the stream records. The ranges of a copy do not overlap. */
  int32_t (*copy)(void* stream, tessera_plugin_address to, tessera_plugin_address from, size_t bytes,
                  tessera_plugin_error* error);
  int32_t (*fill)(void* stream, tessera_plugin_address to, uint8_t value, size_t bytes, tessera_plugin_error* error);
  int32_t (*synchronize)(void* stream, tessera_plugin_error* error);

  /* `timed`: records the time too. record_event() replaces an earlier recording. */
  int32_t (*create_event)(void* device, int32_t timed, void** event, tessera_plugin_error* error);
  void (*free_event)(void* event);
  int32_t (*record_event)(void* stream, void* event, tessera_plugin_error* error);
  int32_t (*wait_event)(void* stream, void* event, tessera_plugin_error* error); /* the stream waits; once recorded */
  int32_t (*synchronize_event)(void* event, tessera_plugin_error* error);        /* the host waits; once recorded */
  /* On the device, from `earlier` to `later`; FAILED_PRECONDITION where one is not passed. Both timed and recorded. */
  int32_t (*event_milliseconds)(void* earlier, void* later, double* milliseconds, tessera_plugin_error* error);

  /* Recorded graphs: all five, or none. None: pieces run operator by operator, and `explain` says so. From
   * begin_recording() on, copies, fills and kernels of the stream are kept with their addresses and not run.
   * end_recording() makes a graph of them, also of none; after it or abandon_recording(), and after an error of
   * end_recording(), the stream does not record. *nodes: kernels, copies and fills; *bytes: of the graph, 0 where
   * unknown. */
  int32_t (*begin_recording)(void* stream, const char* what, tessera_plugin_error* error);
  int32_t (*end_recording)(void* stream, void** graph, int64_t* nodes, int64_t* bytes, tessera_plugin_error* error);
  void (*abandon_recording)(void* stream);
  /* On any stream of the device that does not record, as often as wanted, before earlier launches have ended too. */
  int32_t (*launch_graph)(void* graph, void* stream, tessera_plugin_error* error);
  void (*free_graph)(void* graph);

  /* The device's own way from a piece to a graph, in the place of recording its stream: a graph whose launch does what
   * enqueueing all steps does. Nothing runs meanwhile. Null: pieces are recorded. */
  int32_t (*capture)(void* device, const tessera_plugin_steps* steps, void* stream, const char* what, void** graph,
                     int64_t* nodes, int64_t* bytes, tessera_plugin_error* error);

  /* Versions of driver and libraries, on which measured times depend; null: nothing. */
  void (*versions)(void* self, const tessera_plugin_text* out);
} tessera_plugin_device;

/* ---- Compilers
 * --------------------------------------------------------------------------------------------------------- */

typedef struct tessera_plugin_value {
  const char* name;
  tessera_plugin_type type;
  int32_t is_result; /* 0: from outside of the piece (input, weight, state) */
  int32_t is_output; /* read after the piece */
} tessera_plugin_value;

typedef struct tessera_plugin_piece_node {
  const char* op;
  const tessera_plugin_attribute* attributes;
  size_t num_attributes;
  const int32_t* operands; /* indices into values */
  size_t num_operands;
  const int32_t* mutates; /* [num_operands]: 1 where the node writes the operand */
  const int32_t* results;
  size_t num_results;
} tessera_plugin_piece_node;

/* A part of a forward, sizes as symbols: one program serves all sizes, and all pieces that differ in names alone. */
typedef struct tessera_plugin_piece {
  size_t size;
  const char* text; /* of the graph; it reads back exactly */
  const tessera_plugin_value* values;
  size_t num_values;
  const tessera_plugin_piece_node* nodes; /* in execution order */
  size_t num_nodes;
  const char* device;    /* type of the device */
  int32_t deterministic; /* rows must have the same bits whatever the batch */
} tessera_plugin_piece;

/* Where a program is put together, in execution order. */
typedef struct tessera_plugin_program {
  size_t size;
  /* A value of the compiler's own; *id is its index, behind those of the piece. */
  int32_t (*add_value)(const struct tessera_plugin_program* program, const char* name, const tessera_plugin_type* type,
                       int32_t* id, tessera_plugin_error* error);
  /* The node as it is, by the device's registered kernel. */
  int32_t (*keep_node)(const struct tessera_plugin_program* program, size_t node, tessera_plugin_error* error);
  /* A kernel of the compiler's own for any part of the work: `node` has operands and results as values' indices, and
   * `op` and attributes as the kernel wants them. `kernel` has no planner. `listing`: what it computes, for explain;
   * may be null. */
  int32_t (*add_instruction)(const struct tessera_plugin_program* program, const tessera_plugin_piece_node* node,
                             const tessera_plugin_kernel* kernel, const char* listing, tessera_plugin_error* error);
  void (*note)(const struct tessera_plugin_program* program, const char* text); /* for explain */
  void* host;
} tessera_plugin_program;

typedef struct tessera_plugin_compiler {
  size_t size;
  void* self;
  const char* name; /* for --piecewise-cuda-graph-compiler */
  /* Everything that its programs depend on beside piece and device: its version, its options. Texts that are equal
   * promise equal programs; handles are kept under it from process to process. */
  void (*hash)(void* self, const tessera_plugin_text* out);
  /* `handle`: JSON from which load() makes the same program again; nothing written: it is not kept. */
  int32_t (*compile)(void* self, const tessera_plugin_piece* piece, const tessera_plugin_program* program,
                     const tessera_plugin_text* handle, tessera_plugin_error* error);
  /* The handle is from disk: anything may be in it. After an error the piece is compiled anew. Null: handles are not
   * kept. */
  int32_t (*load)(void* self, const tessera_plugin_piece* piece, const char* handle,
                  const tessera_plugin_program* program, tessera_plugin_error* error);
} tessera_plugin_compiler;

/* ---- Passes and families
 * ------------------------------------------------------------------------------------------------ */

/* A graph pass; runs after the engine's own, in the order of adding. Inputs, weights, states, outputs and their types
 * stay as they are. Its result is verified. */
typedef struct tessera_plugin_pass {
  size_t size;
  void* self;
  const char* name; /* by which it can be switched off */
  const char* summary;
  int64_t version; /* raised with every change of what it makes of some graph */
  /* Pure: graph text in and out; nothing written: it changes nothing. */
  int32_t (*run)(void* self, const char* graph, const tessera_plugin_text* out, tessera_plugin_error* error);
} tessera_plugin_pass;

/* What a body's graph is written for. */
typedef struct tessera_plugin_model {
  size_t size;
  const char* config_json; /* as config() left it; the members of a text_config stand beside the others */
  int32_t dtype;           /* of activations, and of the matrices that they are multiplied with */
  int32_t kv_cache_dtype;  /* with F8E4M3, operators on keys and values take scales: k_scale and v_scale, f32[1] */
  int64_t page_size;      /* tokens: the second dimension of keys' and values' states */
  int64_t max_requests;   /* input last_ids: i32[max_requests] */
  int64_t max_embeddings; /* input embeddings: dtype[max_embeddings, hidden size] */
  /* The graph is that of one of `ranks` devices, which share every layer: each computes its part of the heads and of
   * the MLP, and all_reduce adds the parts up. Refuse more than 1 where the graph is whole. */
  int64_t rank;
  int64_t ranks;
  /* What the config's rotation comes to: a constant f32[num_inv_freq], and the attribute "scale" of rotary_table. */
  const float* inv_freq;
  size_t num_inv_freq;
  double rope_scale;
} tessera_plugin_model;

/* A tensor of the checkpoint, in float32, float16 or bfloat16, or a slice of it, as a part of a weight. */
typedef struct tessera_plugin_part {
  size_t size;
  const char* tensor;
  const int64_t* dims; /* [rank], of the whole tensor; of a transposed one, as the graph has it */
  int32_t rank;        /* 1 to TESSERA_PLUGIN_MAX_RANK */
  int32_t transposed;  /* a matrix, stored as its transpose */
  int64_t slice_dim;   /* indices slice_begin … slice_begin + slice_size - 1 of this dimension, */
  int64_t slice_begin;
  int64_t slice_size; /* 0: the whole tensor */
} tessera_plugin_part;

/* What the weights of a graph are made of. One of which nothing is said is the tensor of its name. */
typedef struct tessera_plugin_weights {
  size_t size;
  /* Below the parts that were added to the weight before: q, k and v may be one matrix. */
  int32_t (*add_part)(const struct tessera_plugin_weights* weights, const char* weight, const tessera_plugin_part* part,
                      tessera_plugin_error* error);
  /* Values that the config determines, in the place of parts. They are copied. */
  int32_t (*add_constant)(const struct tessera_plugin_weights* weights, const char* weight, const float* values,
                          size_t count, tessera_plugin_error* error);
  void* host;
} tessera_plugin_weights;

/* A model family: told by its difference from a known one (`base`), or by a graph of its own (`graph`). */
typedef struct tessera_plugin_family {
  size_t size;
  void* self;
  const char* architecture; /* as config.json has it: "MyForCausalLM" */
  const char* base;         /* the family whose layers it has: "LlamaForCausalLM"; null: there is graph() */
  /* config.json → the same with the fields that `base` reads; nothing written, or null: as it is. Beside graph() those
   * are the fields of every family: vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads,
   * max_position_embeddings, and at will num_key_value_heads, head_dim, tie_word_embeddings, rms_norm_eps, torch_dtype or
   * dtype, rope_theta and the rotation's others (rope_scaling, rope_parameters, partial_rotary_factor), and bos_, eos_ and
   * pad_token_id; each of them also in text_config. quantization_config is refused. All others are graph()'s own. */
  int32_t (*config)(void* self, const char* config_json, const tessera_plugin_text* out, tessera_plugin_error* error);
  /* The body's graph as `base` builds it → this family's, before any pass: text in and out. Inputs, weights, states and
   * outputs keep names and types. Nothing written, or null: as it is. */
  int32_t (*body)(void* self, const char* graph, const tessera_plugin_text* out, tessera_plugin_error* error);
  /* The checkpoint's name of the tensor that `base`, graph() or the head calls so; nothing written, or null: the same.
   */
  void (*tensor)(void* self, const char* name, const tessera_plugin_text* out);
  /* The body as graph text, from tokens to hidden states before any pass, and what its weights are made of. It declares
   * its cache groups, its states, and the inputs that the engine stages:
   *
   *   graph @body {
   *     group "full" paged layers [0, 1]
   *     input %input_ids: i32[T]              ids, and, where input_rows is not -1,
   *     input %input_rows: i32[T]             last_ids[input_rows] in their place (resolve_ids)
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
   * The first five inputs must be declared and read. The head is the engine's: the matrix "lm_head.weight"
   * [vocab_size, hidden_size], or "model.embed_tokens.weight" with tie_word_embeddings. `tessera explain --graph body`
   * shows the graphs of the engine's families. Called for each plan of the model, from any thread: pure. Null: the
   * family is told by its base. */
  int32_t (*graph)(void* self, const tessera_plugin_model* model, const tessera_plugin_text* out,
                   const tessera_plugin_weights* weights, tessera_plugin_error* error);
} tessera_plugin_family;

/* ---- Chat formats
 * ----------------------------------------------------------------------------------------------------
 */

/* What a chat format finds in the text of a model's turn. */
enum {
  TESSERA_PLUGIN_CONTENT = 0,
  TESSERA_PLUGIN_REASONING = 1,
  TESSERA_PLUGIN_CALL = 2,     /* begins a call; the piece is the name of the function */
  TESSERA_PLUGIN_ARGUMENTS = 3 /* of the call that was begun last; together they are the JSON text of an object */
};

/* For which parts of the text a parser is asked; also their sum, of a format. */
enum { TESSERA_PLUGIN_FINDS_REASONING = 1, TESSERA_PLUGIN_FINDS_CALLS = 2 };

/* The text that a parser is made for. It stays until the parser is released. */
typedef struct tessera_plugin_chat {
  size_t size;
  int32_t finds;     /* FINDS_REASONING: content and reasoning are wanted; FINDS_CALLS: content, calls and arguments */
  /* FINDS_REASONING, by the format's reasoning_opening and reasoning_closing: the prompt ends inside the reasoning; the
   * text goes on with a message that has ended its reasoning. At most one of both is 1. */
  int32_t reasoning;
  int32_t reasoned;
  /* FINDS_CALLS: the request's functions, a JSON text [{"type": "function", "function": {"name": …, "parameters": …}},
   * …]; null: any name is a function's. What looks like a call of another function is content. */
  const char* tools;
  int32_t (*has_function)(const struct tessera_plugin_chat* chat, const char* name, size_t bytes);
  void* host;
} tessera_plugin_chat;

/* Takes pieces, in the text's order, as far as they are certain: pieces->add(pieces, TESSERA_PLUGIN_CONTENT, data,
 * bytes, error). Neighbours of one kind are one; each begun call is a call. What follows arguments that break as JSON
 * is content. INVALID_ARGUMENT for a kind that the parser was not asked for, arguments without a call, and more bytes
 * than a text of that length can come to. */
typedef struct tessera_plugin_pieces {
  size_t size;
  int32_t (*add)(const struct tessera_plugin_pieces* pieces, int32_t kind, const char* data, size_t bytes,
                 tessera_plugin_error* error);
  void* host;
} tessera_plugin_pieces;

/* A form in which models write tool calls, reasoning, or both: chosen by its name with --tool-call-parser and
 * --reasoning-parser. Where both are chosen, the content that the one for reasoning gives is the other's text. An error
 * ends the request; so do a call of no function, and one that begins before the last one's arguments are whole. */
typedef struct tessera_plugin_chat_format {
  size_t size;
  void* self;
  const char* name;
  int32_t finds;          /* FINDS_REASONING, FINDS_CALLS, or their sum */
  int32_t special_tokens; /* its marks are special tokens of the model: the text then has them; 0: they are left out */
  /* A text in this form. When the format is added it is read whole, and cut at every byte: the pieces must be the same,
   * with reasoning or a whole call among them, as `finds` says. */
  const char* example;
  /* FINDS_REASONING: the marks around reasoning in prompts. A template may write the opening one at its end, and a
   * message that the model is to continue may have one or both: the chat's `reasoning` and `reasoned` tell of them. Spaces
   * and line ends at the prompt's end do not count. Null: none. */
  const char* reasoning_opening;
  const char* reasoning_closing;
  /* A parser for one text. After an error there is none: what was written there is not released. */
  int32_t (*begin)(void* self, const tessera_plugin_chat* chat, void** parser, tessera_plugin_error* error);
  /* What comes next, cut anywhere; a whole text comes so too. What may still turn out to be a mark is held back. The
   * thread that calls it writes the answers of all requests. */
  int32_t (*push)(void* parser, const char* text, size_t bytes, const tessera_plugin_pieces* pieces,
                  tessera_plugin_error* error);
  /* The text has ended, perhaps in the middle of anything: gives what was held back. */
  int32_t (*finish)(void* parser, const tessera_plugin_pieces* pieces, tessera_plugin_error* error);
  void (*release)(void* parser);
} tessera_plugin_chat_format;

/* ---- The host
 * ------------------------------------------------------------------------------------------------------------ */

/* Each add_ function: INVALID_ARGUMENT for a name that is taken, a null pointer where one is needed, or a size that no
 * version of the table has. */
typedef struct tessera_plugin_host {
  size_t size;
  uint32_t abi;        /* TESSERA_PLUGIN_ABI of the engine */
  const char* version; /* of the engine: "1.2.0" */
  int32_t (*add_operator)(const struct tessera_plugin_host* host, const tessera_plugin_operator* op,
                          tessera_plugin_error* error);
  int32_t (*add_kernel)(const struct tessera_plugin_host* host, const tessera_plugin_kernel* kernel,
                        tessera_plugin_error* error); /* after its operator and its device */
  int32_t (*add_device)(const struct tessera_plugin_host* host, const tessera_plugin_device* device,
                        tessera_plugin_error* error);
  int32_t (*add_compiler)(const struct tessera_plugin_host* host, const tessera_plugin_compiler* compiler,
                          tessera_plugin_error* error);
  int32_t (*add_pass)(const struct tessera_plugin_host* host, const tessera_plugin_pass* pass,
                      tessera_plugin_error* error);
  int32_t (*add_family)(const struct tessera_plugin_host* host, const tessera_plugin_family* family,
                        tessera_plugin_error* error);
  /* For later, from any thread; valid as long as the library is loaded. A line in the log; level 0 debug, 1 info,
   * 2 warning, 3 error. */
  void (*log)(int32_t level, const char* message);
  /* Calls body(context, begin, end) on disjoint ranges that cover [0, count), on the CPU's worker threads; ranges of at
   * least `grain`. For kernels of "cpu". */
  void (*parallel_for)(int64_t count, int64_t grain, void (*body)(void* context, int64_t begin, int64_t end),
                       void* context);
  void* registry; /* the host's own */
  int32_t (*add_chat_format)(const struct tessera_plugin_host* host, const tessera_plugin_chat_format* format,
                             tessera_plugin_error* error);
} tessera_plugin_host;

/* What a plugin exports: who it is, which is looked at before any code of it is called, and the function that adds what
 * it brings. */
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

/* Once in a plugin, at file scope. */
#define TESSERA_PLUGIN(plugin_name, plugin_version)                                                         \
  TESSERA_PLUGIN_EXTERN const tessera_plugin_info tessera_plugin;                                           \
  const tessera_plugin_info tessera_plugin = {sizeof(tessera_plugin_info), TESSERA_PLUGIN_ABI, plugin_name, \
                                              plugin_version};

/* The plugin's. After an error nothing of what it added counts. It returns within ten seconds. */
TESSERA_PLUGIN_EXPORT int32_t tessera_plugin_register(const tessera_plugin_host* host, tessera_plugin_error* error);

#ifdef __cplusplus
}
#endif
#endif
