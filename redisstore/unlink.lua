-- Unlinks hashes of an earlier epoch, which nobody reads any more.
--
-- KEYS     the hashes
--
-- Replies an empty string.

redis.call('UNLINK', unpack(KEYS))
return ''
