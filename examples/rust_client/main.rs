// Streams a text from a model, in Rust without generated bindings: rust_client MODEL_FOLDER PROMPT
//   rustc -O examples/rust_client/main.rs -o rust_client -L <prefix>/lib -l tessera
use std::env;
use std::ffi::{c_void, CStr, CString};
use std::os::raw::{c_char, c_int};
use std::process::ExitCode;
use std::ptr;

#[repr(C)]
struct Event {
    size: usize,
    kind: i32,
    code: i32,
    json: *const c_char,
    json_size: usize,
}

#[repr(C)]
struct Submission {
    size: usize,
    path: *const c_char,
    body: *const c_char,
    body_size: usize,
    on_event: Option<extern "C" fn(*mut c_void, *const Event) -> c_int>,
    user: *mut c_void,
}

const OK: c_int = 0;
const CHUNK: i32 = 1;
const ERROR: i32 = 3;

extern "C" {
    fn tessera_open(options: *const c_char, engine: *mut *mut c_void, error: *mut *mut c_void) -> c_int;
    fn tessera_close(engine: *mut c_void, error: *mut *mut c_void) -> c_int;
    fn tessera_submit(
        engine: *mut c_void,
        submission: *const Submission,
        request: *mut *mut c_void,
        error: *mut *mut c_void,
    ) -> c_int;
    fn tessera_request_next(
        request: *mut c_void,
        timeout_ms: i64,
        event: *mut Event,
        error: *mut *mut c_void,
    ) -> c_int;
    fn tessera_request_free(request: *mut c_void);
    fn tessera_error_message(error: *const c_void) -> *const c_char;
    fn tessera_error_free(error: *mut c_void);
}

// Turns the result of a call into a Result. The call has set `error` if it failed.
fn check(code: c_int, error: *mut c_void) -> Result<(), String> {
    if code == OK {
        return Ok(());
    }
    unsafe {
        let message = CStr::from_ptr(tessera_error_message(error)).to_string_lossy().into_owned();
        tessera_error_free(error);
        Err(message)
    }
}

struct Engine(*mut c_void);

impl Engine {
    fn open(options: &str) -> Result<Engine, String> {
        let options = CString::new(options).map_err(|e| e.to_string())?;
        let (mut engine, mut error) = (ptr::null_mut(), ptr::null_mut());
        check(unsafe { tessera_open(options.as_ptr(), &mut engine, &mut error) }, error)?;
        Ok(Engine(engine))
    }

    fn submit(&self, path: &str, body: &str) -> Result<Request, String> {
        let path = CString::new(path).map_err(|e| e.to_string())?;
        let body = CString::new(body).map_err(|e| e.to_string())?;
        let submission = Submission {
            size: std::mem::size_of::<Submission>(),
            path: path.as_ptr(),
            body: body.as_ptr(),
            body_size: 0,
            on_event: None,
            user: ptr::null_mut(),
        };
        let (mut request, mut error) = (ptr::null_mut(), ptr::null_mut());
        check(unsafe { tessera_submit(self.0, &submission, &mut request, &mut error) }, error)?;
        Ok(Request(request))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        unsafe { tessera_close(self.0, ptr::null_mut()) };
    }
}

struct Request(*mut c_void);

impl Request {
    // Returns the next chunk of a stream; None at its end.
    fn next(&self) -> Result<Option<String>, String> {
        let mut event =
            Event { size: std::mem::size_of::<Event>(), kind: 0, code: 0, json: ptr::null(), json_size: 0 };
        let mut error = ptr::null_mut();
        check(unsafe { tessera_request_next(self.0, -1, &mut event, &mut error) }, error)?;
        let json = unsafe { CStr::from_ptr(event.json) }.to_string_lossy().into_owned();
        match event.kind {
            CHUNK => Ok(Some(json)),
            ERROR => Err(json),
            _ => Ok(None),
        }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        unsafe { tessera_request_free(self.0) };
    }
}

// Returns `text` as a JSON string.
fn quoted(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' => json.push_str(&format!("\\u{:04x}", c as u32)),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

fn run(model: &str, prompt: &str) -> Result<(), String> {
    let engine = Engine::open(&format!("{{\"model-path\": {}}}", quoted(model)))?;
    let body = format!(
        "{{\"prompt\": {}, \"stream\": true, \"max_tokens\": 20, \"temperature\": 0}}",
        quoted(prompt)
    );
    let request = engine.submit("/v1/completions", &body)?;
    while let Some(chunk) = request.next()? {
        println!("{}", chunk);
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    if arguments.len() < 3 {
        eprintln!("usage: rust_client MODEL_FOLDER PROMPT");
        return ExitCode::from(2);
    }
    match run(&arguments[1], &arguments[2]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {}", message);
            ExitCode::FAILURE
        }
    }
}
