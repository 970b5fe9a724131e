// Both clients, in each version of the protocol. Arguments: the port of a service without tokens, and of one with TLS that
// needs one the port, the token and the file of the authority.
import { ioredis } from './ioredis.mjs'
import { nodeRedis } from './node-redis.mjs'

const [plain, guarded, token, ca] = process.argv.slice(2)
for (const client of [ioredis, nodeRedis]) {
  for (const version of ['default', '2', '3']) {
    for (const service of [{ port: plain }, { port: guarded, token, ca }]) {
      try {
        await client({ version, ...service })
      } catch (error) {
        console.error(`${client.name}, RESP ${version}, ${service.ca ? 'by token and TLS' : 'plain'}:`, error)
        process.exitCode = 1
      }
    }
  }
}
if (!process.exitCode) console.log('all as expected')
process.exit()
