-- The end of the script.
if announced[1] then
  redis.call('PUBLISH', ARGV[2], table.concat(announced))
end
reply[said + 1] = table.concat(answers)
reply[said + 2] = pack('>I6', allowed_takes)
return table.concat(reply)
