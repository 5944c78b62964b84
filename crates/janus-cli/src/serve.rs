//! `janus serve`: a folder over HTTP. The files are read into memory at the start, so that no request waits for a
//! disk on a core that serves thousands of others; a folder larger than the bound is refused.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use janus::net::TcpListener;

/// Most bytes of files that are kept in memory.
const BYTES_MAX: u64 = 256 << 20;
/// Most files that are kept.
const FILES_MAX: usize = 65_536;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder; without it every path answers with a greeting.
    folder: Option<PathBuf>,
    /// Address and port to listen on.
    #[arg(long, default_value = "0.0.0.0:8080")]
    listen: String,
    /// TCP cores; by default what the configuration says.
    #[arg(long)]
    cores: Option<usize>,
}

/// The served content: bodies with their content types, by path.
struct Site {
    files: HashMap<String, (Vec<u8>, &'static str)>,
    /// Whether every path gets the greeting, as no folder was given.
    greeting: bool,
}

const GREETING: &[u8] = b"Hello from Janus: this answer crossed a user-level TCP stack.\n";

pub(crate) fn run(args: Args) -> janus::Result<ExitCode> {
    let site = Arc::new(match &args.folder {
        Some(folder) => Site::load(folder)?,
        None => Site {
            files: HashMap::new(),
            greeting: true,
        },
    });
    let mut builder = janus::Runtime::builder();
    if let Some(cores) = args.cores {
        builder = builder.cores(cores);
    }
    let runtime = builder.build()?;
    runtime.run(move || accept(Arc::clone(&site), args.listen.clone()))?;
    Ok(ExitCode::SUCCESS)
}

async fn accept(site: Arc<Site>, listen: String) -> janus::Result {
    let listener = TcpListener::bind(listen).await?;
    janus::once(|| println!("http://{}/", listener.reachable_at()));
    let serving = janus_http::serve_listener(listener, async move |request, response| {
        match (request.method(), site.find(request.path())) {
            ("GET" | "HEAD", Some((body, kind))) => {
                response.ok().header("content-type", kind).send(body).await
            }
            ("GET" | "HEAD", None) => response.status(404).send("no such file\n").await,
            _ => {
                let refused = response.status(405).header("allow", "GET, HEAD");
                refused.send("").await
            }
        }
    });
    Ok(serving.await?)
}

impl Site {
    fn load(folder: &Path) -> janus::Result<Site> {
        let mut site = Site {
            files: HashMap::new(),
            greeting: false,
        };
        let mut left = BYTES_MAX;
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            let entries =
                std::fs::read_dir(&next).map_err(|e| format!("{}: {e}", next.display()))?;
            for entry in entries {
                let entry = entry?;
                let (path, kind) = (entry.path(), entry.file_type()?);
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    let size = entry.metadata()?.len();
                    left = left
                        .checked_sub(size)
                        .ok_or("the folder is larger than 256 MiB")?;
                    site.add(folder, &path)?;
                }
            }
        }
        Ok(site)
    }

    fn add(&mut self, folder: &Path, file: &Path) -> janus::Result {
        if self.files.len() >= FILES_MAX {
            return Err(format!("the folder has more than {FILES_MAX} files").into());
        }
        let relative = file.strip_prefix(folder)?.to_string_lossy();
        let body = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
        self.files
            .insert(format!("/{relative}"), (body, content_type(file)));
        Ok(())
    }

    fn find(&self, path: &str) -> Option<(&[u8], &'static str)> {
        if self.greeting {
            return Some((GREETING, "text/plain; charset=utf-8"));
        }
        let index = || {
            self.files
                .get(&format!("{}/index.html", path.trim_end_matches('/')))
        };
        let (body, kind) = self.files.get(path).or_else(index)?;
        Some((body, kind))
    }
}

fn content_type(file: &Path) -> &'static str {
    match file.extension().and_then(|e| e.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("txt" | "md") => "text/plain; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}
