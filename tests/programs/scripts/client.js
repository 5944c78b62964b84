// Twenty requests at once, one that sends, one that fetches much, one that is refused; prints what came, in an order of its own.
const http = require('http');
const crypto = require('crypto');
const base = process.argv[2];

function ask(path, body) {
  return new Promise((done) => {
    const request = http.request(base + path, { method: body ? 'POST' : 'GET' }, (answer) => {
      const parts = [];
      answer.on('data', (part) => parts.push(part));
      answer.on('end', () => {
        const all = Buffer.concat(parts);
        const sum = crypto.createHash('sha256').update(all).digest('hex');
        done(`${path} ${answer.statusCode} ${all.length} ${sum}`);
      });
    });
    request.on('error', (error) => done(`${path} ${error.code}`));
    request.end(body);
  });
}

async function main() {
  const many = await Promise.all(Array.from({ length: 20 }, () => ask('small')));
  console.log(many.join('\n'));
  console.log(await ask('big'));
  console.log(await ask('post', Buffer.alloc(1000000, 'janus')));
  const nobody = http.get({ host: new URL(base).hostname, port: 7 });
  nobody.on('error', (error) => console.log(error.code));
}

main();
