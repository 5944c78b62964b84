// Answers with the length of what came; ends in order by SIGTERM.
const http = require('http');
const [, , host, port] = process.argv;
const server = http.createServer((request, answer) => {
  let length = 0;
  request.on('data', (part) => { length += part.length; });
  request.on('end', () => answer.end(`${request.method} ${request.url} ${length}\n`));
});
server.listen(Number(port), host, () => console.log('listening'));
process.on('SIGTERM', () => {
  server.close(() => console.log('closed'));
  server.closeAllConnections();
});
